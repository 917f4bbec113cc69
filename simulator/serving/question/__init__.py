"""What is asked: a deployment with its options, policies, failures and drafts."""
