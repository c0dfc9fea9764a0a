"""Looking things up opens no session (from 0.23; older clients open one when they are made)."""

import tinker
from tests.sdks.scripting import sdk, skip

if sdk() < (0, 23):
    skip("opens a session at once")
before = tinker.ServiceClient().create_rest_client().list_sessions(limit=1000).result().sessions
rest = tinker.ServiceClient().create_rest_client()
rest.list_training_runs().result()
assert rest.list_sessions(limit=1000).result().sessions == before
