"""Offers the calls of producers, consumers and operators on one deployment."""
