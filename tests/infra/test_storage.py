from pathlib import Path
from typing import Any

import pytest

from tests.infra.synthesis import ACCOUNT, REGION, Synthesis, listed, synthesised

KEPT = {"S3::Bucket": "RetainExceptOnCreate", "DynamoDB::Table": "Retain", "KMS::Key": "RetainExceptOnCreate"}
"""A protected table cannot be deleted when a first deployment fails; the next one uses an equal name."""


def tables(synthesis: Synthesis) -> dict[str, dict[str, Any]]:
    found = synthesis.properties("DynamoDB::Table")
    return {table["TableName"].removeprefix(f"{synthesis.cell}-"): table for table in found}


def test_the_tables_are_those_of_the_store(each: Synthesis) -> None:
    found = tables(each)
    assert set(found) == {"meta", "counters", "consume", "pull", "keys", "schedule", "dispatch"}
    for name, table in found.items():
        keys = [(key["AttributeName"], key["KeyType"]) for key in table["KeySchema"]]
        assert keys == [("pk", "HASH")] if name == "counters" else [("pk", "HASH"), ("sk", "RANGE")], name
        assert table["BillingMode"] == "PAY_PER_REQUEST", name
        assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}, name


def test_what_goes_with_its_bucket_never_goes_by_age(each: Synthesis) -> None:
    expiring = {name: table.get("TimeToLiveSpecification") for name, table in tables(each).items()}
    by_age = {"AttributeName": "x", "Enabled": True}
    assert {name for name, found in expiring.items() if found == by_age} == {"meta", "consume", "pull", "keys"}
    assert {name for name, found in expiring.items() if found is None} == {"counters", "schedule", "dispatch"}


def test_only_what_push_reads_has_a_stream(defaults: Synthesis, not_much: Synthesis) -> None:
    streams = {name: table.get("StreamSpecification") for name, table in tables(defaults).items()}
    assert {name: found for name, found in streams.items() if found} == {"consume": {"StreamViewType": "KEYS_ONLY"}}
    assert not any("StreamSpecification" in table for table in tables(not_much).values())


def test_data_outlives_the_stack_and_a_failed_first_deployment_leaves_no_buckets(
    defaults: Synthesis, everything: Synthesis
) -> None:
    for kind, policy in KEPT.items():
        for key, found in {**defaults.resources(kind), **everything.resources(kind)}.items():
            assert (found["DeletionPolicy"], found["UpdateReplacePolicy"]) == (policy, "Retain"), key
    assert all(table["DeletionProtectionEnabled"] for table in tables(defaults).values())


def test_data_goes_with_the_stack_if_requested(not_much: Synthesis) -> None:
    for kind in KEPT:
        for key, found in not_much.resources(kind).items():
            assert found["DeletionPolicy"] == "Delete", key
    assert not any(table["DeletionProtectionEnabled"] for table in tables(not_much).values())


def test_nothing_else_outlives_the_stack(each: Synthesis) -> None:
    left = {
        found["Type"].removeprefix("AWS::")
        for found in each.template["Resources"].values()
        if found.get("DeletionPolicy", "Delete") != "Delete"
    }
    assert left <= KEPT.keys()


@pytest.mark.parametrize("purpose", ["Batches", "Lake"])
def test_buckets_are_closed_and_encrypted(each: Synthesis, purpose: str) -> None:
    (bucket,) = bucket_of(each, purpose).values()
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    (encryption,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    own = bool(each.resources("KMS::Key"))
    assert encryption["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == ("aws:kms" if own else "AES256")
    assert encryption.get("BucketKeyEnabled", False) is own, "otherwise each object is a request to KMS"
    assert bucket["OwnershipControls"]["Rules"] == [{"ObjectOwnership": "BucketOwnerEnforced"}]
    assert "VersioningConfiguration" not in bucket


def test_a_key_of_the_customers_own_encrypts_all_that_is_stored(everything: Synthesis, defaults: Synthesis) -> None:
    assert not defaults.resources("KMS::Key")
    (name,) = everything.resources("KMS::Key")
    (key,) = everything.properties("KMS::Key")
    assert key["EnableKeyRotation"] is True
    arn = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{name}"
    assert all(table["SSESpecification"]["KMSMasterKeyId"] == arn for table in everything.properties("DynamoDB::Table"))
    assert all(group["KmsKeyId"] == arn for group in everything.properties("Logs::LogGroup"))
    assert [queue["KmsMasterKeyId"] for queue in everything.properties("SQS::Queue")] == [arn, arn]
    for bucket in everything.properties("S3::Bucket"):
        (encryption,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        assert encryption["ServerSideEncryptionByDefault"]["KMSMasterKeyID"] == arn
    assert {function["KmsKeyArn"] for function in everything.properties("Lambda::Function")} == {arn}
    (topic,) = everything.properties("SNS::Topic")
    assert topic["KmsMasterKeyId"] == arn
    services = {
        service: statement
        for statement in key["KeyPolicy"]["Statement"]
        for service in listed(statement["Principal"].get("Service", []))
    }
    assert services.keys() == {f"logs.{REGION}.amazonaws.com", "events.amazonaws.com", "cloudwatch.amazonaws.com"}
    assert all(statement["Condition"] for statement in services.values()), "each only for this account"
    assert services["cloudwatch.amazonaws.com"]["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]


def test_only_services_that_send_something_may_use_the_key(tmp_path: Path) -> None:
    key_alone = synthesised({"customer_key": "true"}, tmp_path)
    (key,) = key_alone.properties("KMS::Key")
    services = [statement["Principal"].get("Service") for statement in key["KeyPolicy"]["Statement"]]
    assert services == [None, f"logs.{REGION}.amazonaws.com"]


def test_a_queue_of_timers_costs_few_requests_of_the_key(everything: Synthesis) -> None:
    (timers,) = (found for found in everything.properties("SQS::Queue") if "RedrivePolicy" in found)
    assert timers["KmsDataKeyReusePeriodSeconds"] == 86_400


def test_busy_tables_are_warm_from_the_first_second(everything: Synthesis, defaults: Synthesis) -> None:
    warm = {"ReadUnitsPerSecond": 30_000, "WriteUnitsPerSecond": 10_000}
    found = {name: table.get("WarmThroughput") for name, table in tables(everything).items()}
    assert {name: units for name, units in found.items() if units} == dict.fromkeys(
        ("counters", "consume", "pull"), warm
    )
    assert not any("WarmThroughput" in table for table in tables(defaults).values())


@pytest.mark.parametrize("purpose", ["Batches", "Lake"])
def test_buckets_answer_over_tls_only(each: Synthesis, purpose: str) -> None:
    (name,) = bucket_of(each, purpose)
    (policy,) = (found for found in each.properties("S3::BucketPolicy") if found["Bucket"] == name)
    refused = [statement for statement in policy["PolicyDocument"]["Statement"] if statement["Effect"] == "Deny"]
    assert {"Bool": {"aws:SecureTransport": "false"}} in [statement["Condition"] for statement in refused]
    assert all(statement["Action"] == "s3:*" for statement in refused)
    assert all(f"arn:aws:s3:::{name}/*" in listed(statement["Resource"]) for statement in refused)


def test_segments_go_once_nothing_can_name_them_and_those_that_wait_never(each: Synthesis) -> None:
    days = 62 if "archive" in each.functions() else 32  # rows stay until they are archived
    (bucket,) = bucket_of(each, "Batches").values()
    rules = bucket["LifecycleConfiguration"]["Rules"]
    expiring = [rule for rule in rules if "AbortIncompleteMultipartUpload" not in rule]
    assert expiring == [{"Id": "batches", "Prefix": "batches/", "ExpirationInDays": days, "Status": "Enabled"}]
    assert [rule["AbortIncompleteMultipartUpload"] for rule in rules if rule not in expiring] == [
        {"DaysAfterInitiation": 1}
    ]


def test_the_lake_keeps_all_but_the_logs_of_its_jobs(each: Synthesis) -> None:
    (bucket,) = bucket_of(each, "Lake").values()
    rules = bucket["LifecycleConfiguration"]["Rules"]
    expiring = {rule["Prefix"]: rule["ExpirationInDays"] for rule in rules if "ExpirationInDays" in rule}
    assert expiring == ({"logs/": 7} if "archive" in each.functions() else {})
    assert "LakeBucket" in each.template["Outputs"]


def bucket_of(synthesis: Synthesis, purpose: str) -> dict[str, dict[str, Any]]:
    """Returns the properties of the bucket of this name."""
    return {
        key: synthesis.resolved(found["Properties"])
        for key, found in synthesis.resources("S3::Bucket").items()
        if purpose in key
    }
