"""Takes frames as its policy says, and says of each which it is and what its values are, bit for bit.

digests.py RUN|CONTACT POLICY GROUP|- PAUSE_S [TRANSPORT]
"""

import hashlib
import json
import os
import sys
import time

import advectio

where, policy, group, pause = sys.argv[1:5]
run = {"run": where} if os.path.isdir(where) else {"contact": where, "transport": sys.argv[5] if len(sys.argv) > 5 else "tcp"}
for ds in advectio.frames("*", **run, policy=policy, group=None if group == "-" else group, decode=False):
    digests = {str(name): hashlib.sha256(v.values.tobytes()).hexdigest() for name, v in ds.variables.items()}
    about = {"file": os.path.basename(ds.encoding["source"]), "frame": ds.encoding["advectio_frame"]}
    ds.close()
    print(json.dumps(about | {"digests": digests}), flush=True)
    time.sleep(float(pause))
