"""What was computed is told by the hour, and what is stored."""

import datetime

from tests.sdks.scripting import learn, needs, new_model, rest

client = rest()
usage = needs(client, "get_billing_usage")
training = new_model()
learn(training, steps=1)
training.save_state("stored").result()

hour = datetime.datetime.now(datetime.UTC).replace(minute=0, second=0, microsecond=0)
events = usage(hour, hour + datetime.timedelta(hours=2)).result().data
assert {"training", "checkpoint"} <= {event.event_info.type for event in events}, events
if hasattr(client, "get_current_checkpoint_storage_usage"):
    stored = client.get_current_checkpoint_storage_usage().result().data
    assert sum(each.checkpoint_count for each in stored) > 0, stored
