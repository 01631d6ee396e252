"""The graph of a support ticket on which five nodes work by turns: a TypedDict as wide as a real agent's."""

import operator
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypedDict

from graphs import TEXTS, Names, circle, message


class Ticket(TypedDict):
    """The state: forty keys, three of them with a reducer."""

    number: int
    subject: str
    body: str
    language: str
    region: str
    status: str
    opened: float
    due: float
    customer: str
    email: str
    company: str
    customer_since: str
    plan: str
    seats: int
    revenue: float
    contacts: list[dict[str, str]]
    product: str
    version: str
    platform: str
    environment: dict[str, str]
    features: list[str]
    attachments: list[dict[str, str]]
    tags: list[str]
    category: str
    priority: int
    sentiment: float
    team: str
    assignee: str
    query: str
    documents: list[dict[str, str]]
    scores: dict[str, float]
    draft: str
    verdict: str
    confidence: float
    rounds: int
    tokens: int
    cost: float
    messages: Annotated[list[dict[str, str]], operator.add]
    log: Annotated[list[str], operator.add]
    errors: Annotated[list[str], operator.add]


Node = Callable[[Ticket], dict[str, Any]]


def triage(ticket: Ticket) -> dict[str, Any]:
    priority = 1 + (ticket["seats"] + ticket["rounds"]) % 5
    return {
        "rounds": ticket["rounds"] + 1,
        "priority": priority,
        "team": f"{ticket['region']}-{ticket['product']}-{priority}",
    }


def search(ticket: Ticket) -> dict[str, Any]:
    query = f"{ticket['product']} {ticket['version']} {ticket['category']} {ticket['rounds']}"
    titles = [document["title"] for document in ticket["documents"]]
    return {"query": query, "scores": {title: len(query) / (1 + at) for at, title in enumerate(titles)}}


def write(ticket: Ticket) -> dict[str, Any]:
    best = max(ticket["scores"], key=ticket["scores"].__getitem__)
    draft = f"Dear {ticket['customer']}, about {ticket['subject']}: {best} ({ticket['language']})"
    return {"draft": draft, "tokens": ticket["tokens"] + len(draft)}


def review(ticket: Ticket) -> dict[str, Any]:
    good = ticket["plan"] in ticket["tags"] or len(ticket["draft"]) > ticket["priority"]
    return {"verdict": "send" if good else "again", "confidence": 1 / (1 + len(ticket["errors"]))}


def record(ticket: Ticket) -> dict[str, Any]:
    line = f"{ticket['rounds']}: {ticket['verdict']} by {ticket['team']}, {ticket['confidence']}"
    return {
        "status": ticket["verdict"],
        "cost": ticket["cost"] + ticket["tokens"] / 1_000,
        "messages": [message("assistant", len(ticket["messages"]), 120)],
        "log": [line],
    }


def ticket_graph(names: Names, rounds: int, *, sync: bool) -> Any:
    """Build the circle of nodes, which runs `rounds` times: five supersteps each."""

    def again(ticket: Ticket) -> str:
        return "triage" if ticket["rounds"] < rounds else names.END

    nodes = {
        node.__name__: node if sync else awaited(node) for node in (triage, search, write, review, record)
    }
    return circle(names, Ticket, nodes, again)


def awaited(node: Node) -> Callable[[Ticket], Awaitable[dict[str, Any]]]:
    async def run(ticket: Ticket) -> dict[str, Any]:
        return node(ticket)

    return run


def new_ticket() -> Ticket:
    return {
        "number": 48_213,
        "subject": TEXTS[0][:60],
        "body": " ".join(TEXTS[1:5]),
        "language": "pt",
        "region": "emea",
        "status": "open",
        "opened": 1_760_000_000.25,
        "due": 1_760_086_400.0,
        "customer": "Ana Sousa",
        "email": "ana.sousa@example.com",
        "company": "Sousa e Filhos",
        "customer_since": "2021-03-01",
        "plan": "business",
        "seats": 140,
        "revenue": 31_920.5,
        "contacts": [{"name": f"contact {at}", "email": f"contact{at}@example.com"} for at in range(4)],
        "product": "ledger",
        "version": "4.11.2",
        "platform": "linux",
        "environment": {f"SETTING_{at}": TEXTS[at][:30] for at in range(12)},
        "features": [f"feature-{at}" for at in range(15)],
        "attachments": [{"name": f"log-{at}.txt", "text": TEXTS[10 + at]} for at in range(3)],
        "tags": ["billing", "export", "urgent"],
        "category": "export",
        "priority": 3,
        "sentiment": -0.4,
        "team": "",
        "assignee": "rui",
        "query": "",
        "documents": [{"title": f"article {at}", "text": TEXTS[20 + at]} for at in range(8)],
        "scores": {},
        "draft": "",
        "verdict": "",
        "confidence": 0.5,
        "rounds": 0,
        "tokens": 0,
        "cost": 0.0,
        "messages": [message("user", number, 120) for number in range(6)],
        "log": [],
        "errors": [],
    }
