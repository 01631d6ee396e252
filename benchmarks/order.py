"""The graph of an order on which five nodes work by turns: a pydantic state with nested models."""

import operator
from typing import Annotated, Any

from pydantic import BaseModel, Field

from graphs import TEXTS, Names, circle

LINES = 200
"""The number of lines, equal to the number of messages in the conversations of the other cases."""


class Address(BaseModel):
    street: str
    city: str
    postal_code: str = Field(max_length=10)
    country: str


class Customer(BaseModel):
    name: str
    email: str
    tier: int = Field(ge=0, le=5)
    addresses: list[Address]


class Line(BaseModel):
    sku: str
    description: str
    quantity: int = Field(gt=0)
    price: float = Field(ge=0)
    tags: list[str]


class Offer(BaseModel):
    carrier: str
    days: int
    price: float


class Event(BaseModel):
    number: int
    kind: str
    note: str


class Order(BaseModel):
    """The state: twenty fields, of which the nodes change eight. The lines never change."""

    number: int
    currency: str
    customer: Customer
    ship_to: Address
    lines: list[Line]
    coupons: list[str]
    settings: dict[str, str]
    placed: float
    gift: bool
    note: str | None
    warehouse: str
    discount: float = Field(ge=0, le=1)
    rounds: int = Field(ge=0)
    subtotal: float = Field(ge=0)
    tax: float = Field(ge=0)
    total: float = Field(ge=0)
    offers: list[Offer]
    carrier: str
    status: str
    events: Annotated[list[Event], operator.add]


async def price(order: Order) -> dict[str, Any]:
    line = order.lines[order.rounds % len(order.lines)]
    return {"rounds": order.rounds + 1, "subtotal": order.subtotal + line.quantity * line.price}


async def tax(order: Order) -> dict[str, Any]:
    rate = 0.23 if order.ship_to.country == "PT" else 0.2
    return {"tax": order.subtotal * (1 - order.discount) * rate}


async def quote(order: Order) -> dict[str, Any]:
    """Return offers as plain data, as another service would send them."""
    days = 1 + order.rounds % 4
    return {"offers": [{"carrier": f"carrier {at}", "days": days + at, "price": 4.5 + at} for at in range(5)]}


async def choose(order: Order) -> dict[str, Any]:
    offer = min(order.offers, key=lambda offer: offer.price * offer.days)
    return {"carrier": offer.carrier, "total": order.subtotal + order.tax + offer.price}


async def record(order: Order) -> dict[str, Any]:
    event = Event(number=len(order.events), kind="priced", note=f"{order.total:.2f} {order.currency}")
    return {"status": f"{order.carrier} for {order.customer.name}", "events": [event]}


NODES = (price, tax, quote, choose, record)


def order_graph(names: Names, rounds: int) -> Any:
    """Build the circle of nodes, which runs `rounds` times: five supersteps each."""

    def again(order: Order) -> str:
        return "price" if order.rounds < rounds else names.END

    nodes = {node.__name__: node for node in NODES}
    return circle(names, Order, nodes, again)


def new_order() -> dict[str, Any]:
    """Make an order as plain data, as it comes from outside."""
    address = {"street": "Rua Nova 12", "city": "Porto", "postal_code": "4050-123", "country": "PT"}
    return {
        "number": 90_417,
        "currency": "EUR",
        "customer": {"name": "Ana", "email": "ana@example.com", "tier": 2, "addresses": [address] * 2},
        "ship_to": address,
        "lines": [
            {
                "sku": f"sku-{at}",
                "description": TEXTS[at][:80],
                "quantity": 1 + at % 7,
                "price": 2.5 * (1 + at),
                "tags": [f"tag-{at % 3}", "stock"],
            }
            for at in range(LINES)
        ],
        "coupons": ["SPRING", "LOYAL"],
        "settings": {f"setting-{at}": TEXTS[at][:30] for at in range(8)},
        "placed": 1_760_000_000.25,
        "gift": False,
        "note": None,
        "warehouse": "north",
        "discount": 0.05,
        "rounds": 0,
        "subtotal": 0.0,
        "tax": 0.0,
        "total": 0.0,
        "offers": [],
        "carrier": "",
        "status": "new",
        "events": [],
    }
