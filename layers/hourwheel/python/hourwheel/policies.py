"""Builds IAM policies for services that use one subject, or one group of it, and nothing else."""

from hourwheel.aws.policies import consumer_policy, producer_policy, url_policy

__all__ = ["consumer_policy", "producer_policy", "url_policy"]
