"""The referee's control of a runner process: calls, pauses, samples, memory."""
