"""LeaderWorkerSets whose pods hand a script to a shell: quotations over lines, arithmetic of variables."""

from meshwright.exporters.server_files import servers_of
from meshwright.exporters.shell import expanded_commands

MANIFEST = """\
kind: LeaderWorkerSet
spec:
  leaderWorkerTemplate:
    size: 2
    workerTemplate:
      spec:
        containers:
        - image: vllm/vllm-openai:v0.22.1
          command: [/bin/bash, -c]
          args:
          - |-
            exec vllm serve meta-llama/Llama-3.1-8B \\
              --data-parallel-size $((LWS_GROUP_SIZE * DP_SIZE_LOCAL)) \\
              --kv_transfer_config '{"kv_connector":"NixlConnector",
                                      "kv_role":"kv_both"}' \\
              --max-num-seqs ${MOST}
          env:
          - {name: DP_SIZE_LOCAL, value: "4"}
          - {name: MOST, value: "512"}
"""


def test_group_size_and_quoted_json(tmp_path):
    (server,) = servers_of(MANIFEST, "decode.yaml", tmp_path / "decode.yaml")
    assert (server.model, server.version) == ("meta-llama/Llama-3.1-8B", "0.22.1")
    assert server.options["--data-parallel-size"] == "8" and server.options["--max-num-seqs"] == "512"
    assert '"kv_role":"kv_both"' in server.options["--kv-transfer-config"]


def test_apostrophes_are_no_quotations():
    script = "echo \"it's here\"\necho don't\npython train.py --a 1\n"
    assert expanded_commands(script, "x")[-1] == "python train.py --a 1"
