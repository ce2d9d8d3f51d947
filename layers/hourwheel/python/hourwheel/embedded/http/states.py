"""Defines the states of a connection.

IDLE ──first byte──► HEAD ──empty line──► BODY ──last byte──► WORKING ──answer──► IDLE
  │                    │                    │                                      ▲
  │                    └────refused─────────┤ an answer may come before the body:  │
  └──late──► closed          ▼              └───── the rest of it is dropped ──────┘
                          CLOSING: later bytes are dropped for a moment, so that the answer is not lost
"""

from enum import Enum


class State(Enum):
    IDLE = 0
    HEAD = 1
    BODY = 2
    WORKING = 3
    CLOSING = 4
