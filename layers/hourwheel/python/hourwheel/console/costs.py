"""Estimates the cost of a page's calls on AWS, before the calls are made."""

# List prices of us-east-1 in USD, without free tiers; a test compares them with those of the cost model.
HTTP_REQUEST_USD = 1.0e-6
INVOCATION_USD = 0.2e-6
GB_SECOND_USD = 1.33334e-5
READ_UNIT_USD = 0.125e-6

_MEMORY_GB = 0.5  # of the functions of the API, unless the deployment sets another size
_SECONDS = 0.1  # of a call of the control plane in a warm function: it waits for DynamoDB
_UNITS = 12  # to read the numbers of a subject or a group: its record, counters of queues, checkpoints, open pull rows

CALL_USD = HTTP_REQUEST_USD + INVOCATION_USD + _MEMORY_GB * _SECONDS * GB_SECOND_USD
READ_USD = _UNITS * READ_UNIT_USD
