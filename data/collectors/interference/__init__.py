"""The collector of programs that share a host: victims, neighbours, windows of metrics."""
