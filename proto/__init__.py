"""The public API: the .proto files of package framepool.v1 and the code generated from them (committed).

Change a .proto, then run ``python -m framepool.proto.generate``. Nothing here is written by hand but the .proto files
and the generator.
"""
