import os

# On the CPU alone they would repeat what other tests show.
collect_ignore = (
    ["test_models.py", "test_runs.py"] if os.environ.get("KBO_TEST_DEVICE", "cpu") == "cpu" else []
)
