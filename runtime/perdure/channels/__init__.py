"""Channels: the cells of a graph's state. Each class has its own rule for merging a superstep's writes."""

from perdure.channels.any_value import AnyValue
from perdure.channels.base import BaseChannel
from perdure.channels.binop import BinaryOperatorAggregate
from perdure.channels.delta import DeltaChannel
from perdure.channels.ephemeral_value import EphemeralValue
from perdure.channels.last_value import LastValue
from perdure.channels.last_value_after_finish import LastValueAfterFinish
from perdure.channels.named_barrier_value import NamedBarrierValue
from perdure.channels.named_barrier_value_after_finish import NamedBarrierValueAfterFinish
from perdure.channels.topic import Topic
from perdure.channels.untracked_value import UntrackedValue

__all__ = [
    "AnyValue",
    "BaseChannel",
    "BinaryOperatorAggregate",
    "DeltaChannel",
    "EphemeralValue",
    "LastValue",
    "LastValueAfterFinish",
    "NamedBarrierValue",
    "NamedBarrierValueAfterFinish",
    "Topic",
    "UntrackedValue",
]
