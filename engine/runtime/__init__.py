"""Processes, shared memory, backends and transport: the part that does I/O. Knows nothing of gRPC.

engine process                          decoder process (n)            stage worker process (one a virtual device)
+------------------------------+        +----------------------+       +-------------------------------+
| data_plane thread            |<------>| streams.DecoderWorker|       | backends.LoadedStage          |
|  owns: scheduler, slot books,| grants,|  a thread a stream   |       | heads (last stage)            |
|  ROUTER socket, frame table  | frames |  writes frame slots  |       | reads slots, writes           |
|                              |        +----------------------+       | activation slots              |
|                              |<------------------------------------->| PULL socket <- other workers  |
| fleet thread(s): start, watch|          batches, reports             +-------------------------------+
+------------------------------+
/dev/shm: arenas, created and unlinked by the engine alone; children only map them.
"""
