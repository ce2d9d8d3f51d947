"""The HTTP API: requests, answers, problem documents, one function per Lambda."""
