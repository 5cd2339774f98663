"""The referee's hold on a runner process: calls, pauses, samples, memory."""
