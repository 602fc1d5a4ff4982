"""Reads the frames of writer.py by a contact file, and says of each what it saw: first, last and sum of values.

reader.py CONTACT
"""

import json
import sys
import threading
import time

import advectio
from advectio.live import find

contact = sys.argv[1]


def say_when_subscribed() -> None:
    """The server knows: nothing else can say it before the first frame."""
    client = find.connect_contact(contact)
    mine = find.name()
    while True:
        readers = client.ask("status")["readers"]
        if any(r["name"].endswith(mine) and r["subscriptions"] for r in readers):
            print("subscribed", flush=True)
            return
        time.sleep(0.01)


threading.Thread(target=say_when_subscribed, daemon=True).start()
for ds in advectio.frames("out*.nc", contact=contact, decode=False):
    values = {name: ds[name].values.ravel() for name in ("Q", "T2", "HGT")}
    print(
        json.dumps(
            {
                "frame": ds.encoding["advectio_frame"],
                "time": b"".join(ds.Times.values.ravel()).decode(),
                **{name: [float(v[0]), float(v[-1]), float(v.sum())] for name, v in values.items()},
            }
        ),
        flush=True,
    )
