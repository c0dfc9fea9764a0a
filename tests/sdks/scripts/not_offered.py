"""What this server does not offer says so, once and at once."""

import tinker
from tests.sdks.scripting import new_model, refused, rest, skip

tried = 0
client = rest()
if hasattr(client, "get_audit_log"):
    refused(lambda: client.get_audit_log().result(), says="not supported")
    tried += 1
if hasattr(client, "export_session_trace"):
    session = new_model().get_info().model_id.split(":")[0]
    refused(
        lambda: client.export_session_trace(session).result(),
        says="not supported",
        by=RuntimeError,
    )
    tried += 1
if hasattr(tinker, "DimuonOptimizerConfig"):
    refused(lambda: new_model(optimizer=tinker.DimuonOptimizerConfig()), says="dimuon")
    tried += 1
if not tried:
    skip("offers nothing that we do not")
