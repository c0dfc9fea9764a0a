"""`tinker model list` and `tinker auth status`."""

from tests.sdks.scripting import MODEL, run_tinker, skip

if "model" not in run_tinker("--help"):
    skip("the command line has no such commands")
assert MODEL in run_tinker("model", "list")
run_tinker("auth", "status")
