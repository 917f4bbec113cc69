from pathlib import Path

import numpy as np
import pytest
import yaml

from core.errors import InputError
from hwmodels.device import Device, devices
from hwmodels.kernels.chip import chip
from hwmodels.kernels.gemm import THROTTLE_END_S, THROTTLE_START_S, Roofline
from profiles import points as point_files
from profiles.fitting import calibrate, write_calibration
from profiles.fitting.calibration_entry import fit_entry
from profiles.fitting.holdout import FEWEST_UNSEEN, errors, folds, held_out
from profiles.fitting.operations import DECODE, EXPERTS, FORWARD, MEMORY_BOUND, OPERATIONS, RICH, SIMPLE
from profiles.fitting.operations.gemm import settled_throttling
from profiles.fitting.residuals import Smoother, axis_covariance, best_smoother, residual_grid
from profiles.fitting.robust import Number, fit, free_numbers, read_numbers, with_numbers
from profiles.fitting.select import groups, library_of, read_points

DEVICE = devices.get("h100-sxm")
TRUE = Roofline(overhead_s=5e-6, compute_efficiency=0.6, memory_efficiency=0.7, overlap_exponent=2.0)


def gemm_rows(count, seconds, seed=0, gpu="h100-sxm", **more):
    random = np.random.default_rng(seed)
    m, n, k = (np.round(2.0 ** random.uniform(5, 13, count)).astype(int) for _ in range(3))
    times = seconds(m, n, k)
    return [
        {"gpu": gpu, "dtype": "bf16", "m": a, "n": b, "k": c, "time_us": t * 1e6, "source": "here"} | more
        for a, b, c, t in zip(m, n, k, times, strict=True)
    ]


def write(folder: Path, table: str, rows) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{table}.csv"
    point_files.write(path, point_files.TABLES[table], rows)
    return path


def gemm_points(tmp_path, count=200, noise=0.0, outliers=0.0, seed=0):
    """Points that the simple form describes, with noise and a share of wild ones."""
    random = np.random.default_rng(seed)

    def seconds(m, n, k):
        shape = {name: np.asarray(v, dtype=float) for name, v in zip("mnk", (m, n, k), strict=True)}
        flops = 2 * shape["m"] * shape["n"] * shape["k"]
        moved = 2 * ((shape["m"] + shape["n"]) * shape["k"] + shape["m"] * shape["n"])
        compute = flops / (DEVICE.peak("bf16") * TRUE.compute_efficiency)
        memory = moved / (DEVICE.memory_bandwidth * TRUE.memory_efficiency)
        clean = TRUE.overhead_s + np.hypot(compute, memory)
        wild = np.where(random.random(count) < outliers, 3.0, 1.0)
        return clean * np.exp(noise * random.standard_normal(count)) * wild

    write(tmp_path, "gemm", gemm_rows(count, seconds, seed))
    return read_points([tmp_path])[0]["gemm"][0]


def relative(found: Roofline):
    ours, theirs = found.model_dump(), TRUE.model_dump()
    return {name: ours[name] / theirs[name] - 1 for name in theirs}


def test_numbers_are_recovered_from_clean_points(tmp_path):
    entry = fit_entry(SIMPLE, chip(DEVICE, "bf16"), gemm_points(tmp_path), SIMPLE.generic, 0.15, False)
    assert all(abs(error) < 0.02 for error in relative(entry.form).values())
    assert entry.error.median < 0.005


def test_wild_points_hardly_pull(tmp_path):
    points = gemm_points(tmp_path, noise=0.02, outliers=0.05)
    entry = fit_entry(SIMPLE, chip(DEVICE, "bf16"), points, SIMPLE.generic, 0.15, False)
    assert abs(relative(entry.form)["compute_efficiency"]) < 0.05
    assert abs(relative(entry.form)["memory_efficiency"]) < 0.05
    assert 0.005 < entry.error.median < 0.04


def test_the_prior_fades_as_points_grow(tmp_path):
    def distance(count):
        points = gemm_points(tmp_path / str(count), count, noise=0.1)
        found = fit_entry(SIMPLE, chip(DEVICE, "bf16"), points, SIMPLE.generic, 0.15, False).form
        return abs(np.log(found.compute_efficiency / SIMPLE.generic.compute_efficiency))

    whole = abs(np.log(TRUE.compute_efficiency / SIMPLE.generic.compute_efficiency))
    assert distance(8) < distance(2000)
    assert distance(2000) == pytest.approx(whole, rel=0.1)


def test_few_points_free_few_numbers():
    counts = [len(free_numbers(RICH.numbers, n)) for n in (24, 96, 1000)]
    assert counts == [5, 7, 14]


def test_fits_are_the_same_every_time(tmp_path):
    points = gemm_points(tmp_path, noise=0.05)
    forms = [
        fit_entry(SIMPLE, chip(DEVICE, "bf16"), points, SIMPLE.generic, 0.15, False).form for _ in range(2)
    ]
    assert forms[0] == forms[1]


def test_numbers_in_mappings_can_be_fitted():
    form = FORWARD.generic
    numbers = [
        Number("efficiency.128", 0.1, 1.0),
        Number("efficiency.96", 0.1, 1.0),
        Number("tail", 0.1, 9.0),
    ]
    assert set(read_numbers(form, numbers)) == {"efficiency.128", "tail"}
    changed = with_numbers(form, {"efficiency.128": 0.9, "tail": 2.0})
    assert (changed.efficiency[128], changed.efficiency[64], changed.tail) == (0.9, form.efficiency[64], 2.0)


def test_fit_keeps_constants_that_are_not_asked_for():
    def predict(form, index):
        return np.full(len(index), form.overhead_s)

    found = fit(TRUE, (Number("overhead_s", 1e-7, 1e-3, 0),), predict, np.full(40, 9e-6))
    assert found.overhead_s == pytest.approx(9e-6, rel=0.01)
    assert found.compute_efficiency == TRUE.compute_efficiency


def test_shapes_kept_out_are_kept_out_together_and_always_the_same():
    keys = np.repeat([f"{i}" for i in range(100)], 5)
    out = held_out(keys, 0.3)
    assert out.sum() == 150
    assert all(len(set(out[keys == key])) == 1 for key in set(keys))
    assert np.array_equal(out, held_out(keys, 0.3))
    shuffled = np.random.default_rng(0).permutation(500)
    assert np.array_equal(held_out(keys[shuffled], 0.3), out[shuffled])


def test_with_few_keys_points_are_kept_out_one_by_one():
    assert held_out(np.repeat(["a", "b"], 50), 0.2).sum() == 20


def test_of_few_points_every_one_is_kept_out_once():
    for keys in (
        np.arange(25).astype(str),
        np.repeat(["a", "b"], 2),
        np.repeat(np.arange(10).astype(str), 3),
    ):
        parts = folds(keys, 0.15)
        assert np.array_equal(np.sum(parts, axis=0), np.ones(len(keys)))
        assert len(parts) > 1
    many = folds(np.arange(200).astype(str), 0.15)
    assert len(many) == 1
    assert many[0].sum() >= FEWEST_UNSEEN


def test_an_error_on_few_points_is_stated_on_all_of_them(tmp_path):
    points = gemm_points(tmp_path, 25, noise=0.05)
    entry = fit_entry(SIMPLE, chip(DEVICE, "bf16"), points, SIMPLE.generic, 0.15, False)
    assert (entry.error.shapes, len(entry.unseen.form_s)) == (25, 25)
    assert 0.01 < entry.error.median < 0.15


def test_errors_tell_large_from_small():
    found = errors(np.array([110e-6, 9e-6, 10e-6]), np.array([100e-6, 10e-6, 10e-6]))
    assert (found.shapes, found.large_median, found.small_median) == (3, 0.1, 0.05)


SMOOTH = Smoother((axis_covariance(1.0, 1.0, 1.0),), noise=1e-6)


def test_residuals_are_met_at_points_and_fade_far_away():
    x, y = np.array([1.0, 2.0, 1024.0]), np.array([1.0, 4.0, 1.0])
    grid = residual_grid((x, y), np.array([1.1, 0.9, 1.3]), SMOOTH)
    assert grid.factor(x, y) == pytest.approx([1.1, 0.9, 1.3], rel=1e-3)
    far = residual_grid((np.r_[x, 2.0**40], np.r_[y, 1.0]), np.array([1.1, 0.9, 1.3, 1.0]), SMOOTH)
    assert far.factor(2.0**30, 1.0) == pytest.approx(1.0, abs=0.2)


def test_equal_places_give_their_median():
    ones = np.ones(5)
    grid = residual_grid((np.r_[ones, 8.0], np.r_[ones, 8.0]), np.array([1, 1.2, 1.2, 1.2, 9, 1]), SMOOTH)
    assert grid.factor(1.0, 1.0) == pytest.approx(1.2, rel=1e-3)


def test_rows_and_columns_may_change_places():
    smoother = Smoother(SMOOTH.covariances, 1e-6, exchanges=(0, 1))
    x, y = np.array([256.0, 512.0, 256.0, 512.0, 2048.0]), np.array([1024.0, 2048.0, 512.0, 512.0, 512.0])
    ratios = np.array([1.0, 1.2, 1.0, 1.0, 0.8])
    grid = residual_grid((x, y), ratios, smoother)
    assert grid.factor(512.0, 2048.0) == pytest.approx(1.2, rel=1e-3)
    assert grid.factor(2048.0, 512.0) == pytest.approx(0.8, rel=1e-3)
    grid = residual_grid((x[:-1], y[:-1]), ratios[:-1], smoother)
    assert grid.axes[0].max() < np.log2(2048)


def test_a_smoother_that_does_not_help_is_not_used():
    random = np.random.default_rng(0)
    x, y = 2.0 ** random.uniform(0, 8, 300), 2.0 ** random.uniform(0, 8, 300)
    out = np.arange(300) % 5 == 0
    smooth = np.exp(0.1 * np.log2(x) - 0.4)
    noisy = np.exp(0.2 * random.standard_normal(300))
    assert best_smoother((x, y), smooth, (SMOOTH,), out) is SMOOTH
    assert best_smoother((x, y), noisy, (SMOOTH,), out) is None


def test_points_say_whose_kernels_they_are(tmp_path):
    rows = gemm_rows(4, lambda m, n, k: np.full(len(m), 1e-3))
    for row, source in zip(rows, ("aic:trtllm-1.3", "aic:vllm-0.24.0", "vidur", "my own"), strict=True):
        row["source"] = source
    write(tmp_path, "gemm", rows)
    points = read_points([tmp_path])[0]["gemm"][0]
    assert library_of(points).tolist() == ["trtllm", "vllm", "vidur", ""]
    assert sorted(library for _, library, _ in groups(points)) == ["", "trtllm", "vidur", "vllm"]


def test_impossible_points_are_dropped_and_counted(tmp_path):
    rows = gemm_rows(20, lambda m, n, k: np.full(len(m), 1e-2))
    rows[3] |= {"m": 8192, "n": 8192, "k": 8192, "time_us": 1.0}
    write(tmp_path, "gemm", rows)
    tables, dropped = read_points([tmp_path])
    assert dropped == 1
    assert len(tables["gemm"][0]) == 19


def truth_rows():
    """Points of every table as the shipped H100 would give them, slowed down by a tenth."""
    kernels = DEVICE.kernels.uncorrected()
    random = np.random.default_rng(1)
    gemm = gemm_rows(60, lambda m, n, k: 1.1 * kernels.gemm(m, n, k))
    for layout, slower in (("dgrad", 1.05), ("wgrad", 1.2)):
        gemm += gemm_rows(8, lambda m, n, k, s=slower: 1.1 * s * kernels.gemm(m, n, k), seed=2, layout=layout)
    attention, decode = [], []
    for _ in range(40):
        batch, length, heads = (
            2 ** random.integers(0, 4),
            2 ** random.integers(8, 13),
            2 ** random.integers(3, 6),
        )
        base = {
            "gpu": "h100-sxm",
            "dtype": "bf16",
            "batch": batch,
            "n_heads": heads,
            "n_kv_heads": heads // 4,
        }
        base |= {"head_dim": 128, "seq_kv": length, "kernel": "sdpa"}
        shape = (batch, length, length, heads, heads // 4, 128)
        for direction in ("forward", "backward"):
            seconds = 1.1 * float(kernels.attention(*shape, direction=direction))
            attention.append(base | {"seq_q": length, "direction": direction, "time_us": seconds * 1e6})
        seconds = 1.1 * float(
            kernels.attention_decode(batch, length, heads, heads // 4, 128, cache_in_l2=True)
        )
        decode.append(base | {"seq_q": 1, "time_us": seconds * 1e6})
    elementwise = [
        {"op": op, "gpu": "h100-sxm", "dtype": "bf16", "tokens": t, "dims": 4096, "bytes_per_token": 16384}
        | {"time_us": 1.1e6 * float(kernels.memory_bound(t * 16384.0, "norm"))}
        for op in ("rms_norm", "layer_norm")
        for t in (64, 512, 4096, 32768, 131072)
    ]
    elementwise.append(
        {
            "op": "launch_eager",
            "gpu": "h100-sxm",
            "tokens": 1,
            "dims": 1,
            "bytes_per_token": 0,
            "time_us": 7.0,
        }
    )
    host = {"op": "copy_host_to_device", "gpu": "h100-sxm", "tokens": 1, "dims": 1}
    elementwise.append(host | {"bytes_per_token": 2**28, "time_us": 2**28 / 40e9 * 1e6})
    return {
        "gemm": gemm,
        "attention_prefill": attention,
        "attention_decode": decode,
        "elementwise": elementwise,
    }


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("points")
    for table, rows in truth_rows().items():
        write(folder, table, rows)
    said = []
    return calibrate([folder], DEVICE, say=said.append), said


@pytest.mark.slow
def test_a_whole_calibration_says_what_is_measured(calibrated):
    fit_, said = calibrated
    content = fit_.calibration
    assert content["gemm"]["bf16"]["status"] == "measured"
    assert content["attention_backward"]["bf16"]["status"] == "measured"
    assert content["grouped_gemm"]["bf16"]["status"] != "measured"
    assert content["launch_s"] == pytest.approx(7e-6)
    assert content["host_copy"]["bandwidth"] == pytest.approx(40e9, rel=0.01)
    assert content["layouts"]["dgrad"] == pytest.approx(1.05, rel=0.04)
    assert content["layouts"]["wgrad"] == pytest.approx(1.2, rel=0.04)
    assert len(said) == len(fit_.errors) >= 5
    for row in fit_.errors:
        assert row["error"]["median"] < 0.08, row


@pytest.mark.slow
def test_the_calibrated_device_predicts_its_points(calibrated, tmp_path):
    files = write_calibration(calibrated[0], tmp_path / "mine.yaml")
    assert all(file.is_file() for file in files)
    content = yaml.safe_load(files[0].read_text())
    assert content["name"] == "h100-sxm"
    mine = Device.model_validate(DEVICE.model_dump() | {"calibration": str(files[0])})
    ratio = mine.kernels.gemm(3000, 5000, 4000) / DEVICE.kernels.uncorrected().gemm(3000, 5000, 4000)
    assert ratio == pytest.approx(1.1, rel=0.06)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_too_few_points_say_how_many_are_missing(tmp_path):
    write(tmp_path, "gemm", gemm_rows(3, lambda m, n, k: np.full(len(m), 1e-2)))
    with pytest.raises(InputError, match="gemm in bf16: 3 points, 6 are needed"):
        calibrate([tmp_path], DEVICE)


def test_points_of_another_device(tmp_path):
    rows = gemm_rows(30, lambda m, n, k: np.full(len(m), 1e-2), gpu="a100-sxm")
    rows += gemm_rows(30, lambda m, n, k: np.full(len(m), 1e-2), gpu="b200")
    write(tmp_path, "gemm", rows)
    with pytest.raises(InputError, match="a100-sxm, b200"):
        calibrate([tmp_path], DEVICE)


def test_an_empty_folder_and_a_wrong_file(tmp_path):
    with pytest.raises(InputError, match=r"gemm\.csv"):
        calibrate([tmp_path], DEVICE)
    (tmp_path / "gemm.csv").write_text("gpu,dtype,m,n,k,time_us\nh100-sxm,bf16,1,1,1,-3\n")
    with pytest.raises(InputError, match=r"line 2, column time_us"):
        calibrate([tmp_path], DEVICE)


def test_every_operation_has_room_around_its_generic_numbers():
    for operation in (SIMPLE, RICH, FORWARD, DECODE, EXPERTS, MEMORY_BOUND):
        assert operation in OPERATIONS
        values = read_numbers(operation.generic, operation.numbers)
        for number in operation.numbers:
            if values.get(number.path):
                assert number.low < values[number.path] < number.high, (operation.name, number.path)


def test_throttling_is_read_from_long_products_or_stays_as_assumed():
    figures = chip(DEVICE, "bf16")
    sides = np.round(np.geomspace(2048, 40000, 60) / 128) * 128
    busy = 2.0 * sides**3 / figures.peak
    slowdown = 1.0 + 0.05 * np.log1p(np.minimum(busy, THROTTLE_END_S) / THROTTLE_START_S)
    points = point_files.Points(
        point_files.TABLES["gemm"], dict.fromkeys("mnk", sides) | {"time_us": busy * slowdown * 1e6 / 0.7}
    )

    assert settled_throttling(points, figures, 0.0) == pytest.approx(0.05, rel=0.25)
    assert settled_throttling(points.where(busy < 0.5 * THROTTLE_END_S), figures, 0.01) == 0.01
