"""The Open Inference Protocol, version 2, which KServe speaks: over HTTP and over gRPC."""
