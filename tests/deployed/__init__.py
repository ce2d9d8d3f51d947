"""Runs the deployed system here: creates the resources of the synthesised template on ministack over loopback HTTP, and
uses them.

| what | where it runs |
| --- | --- |
| CDK app | a process of its own; the assets that it leaves are uploaded as ``cdk deploy`` would upload them |
| tables, stream, buckets, queue, schedules, API with its routes, functions, mapping | ministack |
| functions | processes that ministack starts, as many as there are invocations at a time, by schedules, stream, API and
              each other; code, handler and variables are those of the template, the library is the layer as built |
| third-party layer | its wheels are for arm64: the layer here holds ``world.py``, the virtual environment the rest |
| targets of push | a function, queues and a bus on ministack; HTTPS a server of the test's, behind a host name |
| clock | the machine's and an offset that tests set: an hour passes at once, for functions and schedules alike |
| IAM | judged by ``policies.py``: ministack records each request of a function, and refuses none |

Missing: signatures of requests to the API (its routes state AWS_IAM, ministack admits every caller), TTL, life cycles,
alarms, reserved concurrency, EMR Serverless (its jobs run in ``tests/pipeline``).
"""
