"""A server kind whose process starts and then never gets ready."""

import sys

from launch._spec import ServerSpec
from launch._starting import start_server
from tests.fake.launch import Scripted


class Slow(Scripted):
    """The scripted server with another program in its place."""

    async def start(self, models, log_path):
        command = "import os, sys, time; print('pid', os.getpid(), flush=True); time.sleep(300)"
        spec = ServerSpec(
            kind="slow",
            names=tuple(model.name for model in models),
            argv=lambda port, *_: (sys.executable, "-c", command),
            stop_grace_s=1.0,
        )
        return await start_server(spec, log_path)
