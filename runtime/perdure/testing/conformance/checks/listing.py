"""alist: a thread's history, newest first."""

from __future__ import annotations

from perdure.testing.conformance.expectations import expect
from perdure.testing.conformance.subject import Capability, Subject
from perdure.testing.conformance.timeline import Timeline, ids_of, new_name, pending

LIST = Capability("list")


async def three_steps(subject: Subject) -> Timeline:
    """Store three checkpoints: an input, a loop and an update."""
    timeline = Timeline(subject)
    await timeline.put({"n": 0}, source="input", step=-1, user="ann", tags=["a"])
    await timeline.put({"n": 1}, source="loop", step=0, user="bob", tags=["a", "b"])
    await timeline.put({"n": 2}, source="update", step=1, user="bob", nested={"on": True, "n": 1})
    return timeline


@LIST.check
async def all_threads_are_listed_without_a_config(subject: Subject) -> None:
    one, other = Timeline(subject), Timeline(subject)
    await one.put_many(2)
    await other.put_many(1)
    listed = set(await ids_of(subject.saver.alist(None)))
    expect({*one.ids, *other.ids} - listed, set(), "the checkpoints that were not listed")


@LIST.check
async def one_thread_is_listed(subject: Subject) -> None:
    one, other = Timeline(subject), Timeline(subject)
    await one.put_many(2)
    await other.put_many(1)
    listed = await ids_of(subject.saver.alist({"configurable": {"thread_id": one.thread_id}}))
    expect(listed, one.ids[::-1], "the ids")


@LIST.check
async def one_namespace_is_listed(subject: Subject) -> None:
    root = Timeline(subject)
    child = Timeline(subject, root.thread_id, ns="child:1")
    await root.put_many(2)
    await child.put_many(2)
    expect(await root.stored_ids(), root.ids[::-1], "the ids of the root")
    expect(await child.stored_ids(), child.ids[::-1], "the ids of the child")


@LIST.check
async def all_namespaces_are_listed_when_none_is_named(subject: Subject) -> None:
    root = Timeline(subject)
    child = Timeline(subject, root.thread_id, ns="child:1")
    await root.put_many(1)
    await child.put_many(1)
    listed = await ids_of(subject.saver.alist({"configurable": {"thread_id": root.thread_id}}))
    expect(listed, sorted([*root.ids, *child.ids], reverse=True), "the ids")


@LIST.check
async def newest_comes_first(subject: Subject) -> None:
    timeline = Timeline(subject)
    first, second, third = (timeline.commit({"n": number}) for number in range(3))
    for commit in (second, third, first):
        await subject.saver.acommit(commit)
    expect(await timeline.stored_ids(), timeline.ids[::-1], "the ids")


@LIST.check
async def one_checkpoint_is_listed_when_it_is_named(subject: Subject) -> None:
    timeline = Timeline(subject)
    first = await timeline.put()
    await timeline.put()
    expect(await ids_of(subject.saver.alist(first)), timeline.ids[:1], "the ids")


@LIST.check
async def what_is_listed_is_whole(subject: Subject) -> None:
    timeline = await three_steps(subject)
    listed = [stored async for stored in subject.saver.alist(timeline.place)]
    expect([stored.checkpoint["channel_values"]["n"] for stored in listed], [2, 1, 0], "the values")
    expect([stored.metadata.get("step") for stored in listed], [1, 0, -1], "the steps")
    expect(
        [stored.config for stored in listed[1:]] + [None],
        [stored.parent_config for stored in listed],
        "parents",
    )


@LIST.check
async def filter_by_one_key(subject: Subject) -> None:
    timeline = await three_steps(subject)
    listed = await ids_of(subject.saver.alist(timeline.place, filter={"source": "loop"}))
    expect(listed, [timeline.ids[1]], "the ids")


@LIST.check
async def filter_by_a_number(subject: Subject) -> None:
    timeline = await three_steps(subject)
    listed = await ids_of(subject.saver.alist(timeline.place, filter={"step": -1}))
    expect(listed, [timeline.ids[0]], "the ids")


@LIST.check
async def filter_by_several_keys(subject: Subject) -> None:
    timeline = await three_steps(subject)
    listed = await ids_of(subject.saver.alist(timeline.place, filter={"source": "update", "step": 1}))
    expect(listed, [timeline.ids[2]], "the ids of which both are true")
    listed = await ids_of(subject.saver.alist(timeline.place, filter={"source": "update", "step": 0}))
    expect(listed, [], "the ids of which only one is true")


@LIST.check
async def filter_by_custom_keys(subject: Subject) -> None:
    timeline = await three_steps(subject)
    listed = await ids_of(subject.saver.alist(timeline.place, filter={"user": "bob"}))
    expect(listed, [timeline.ids[2], timeline.ids[1]], "the ids")


@LIST.check
async def filter_wants_whole_values(subject: Subject) -> None:
    timeline = await three_steps(subject)
    for wanted, expected in (
        ({"tags": ["a"]}, [timeline.ids[0]]),
        ({"nested": {"on": True, "n": 1}}, [timeline.ids[2]]),
        ({"nested": {"on": True}}, []),
        ({"nested": None}, []),
        ({"step": True}, []),
        ({"step": "1"}, []),
    ):
        expect(
            await ids_of(subject.saver.alist(timeline.place, filter=wanted)),
            expected,
            f"filtered by {wanted}",
        )


@LIST.check
async def filter_that_nothing_matches(subject: Subject) -> None:
    timeline = await three_steps(subject)
    expect(await ids_of(subject.saver.alist(timeline.place, filter={"source": "fork"})), [], "the ids")
    expect(await ids_of(subject.saver.alist(timeline.place, filter={"unknown": 1})), [], "the ids")


@LIST.check
async def filter_across_threads(subject: Subject) -> None:
    run_id, one, other = new_name("run"), Timeline(subject), Timeline(subject)
    await one.put(run_id=run_id)
    await one.put(run_id=new_name("run"))
    await other.put(run_id=run_id)
    listed = await ids_of(subject.saver.alist(None, filter={"run_id": run_id}))
    expect(sorted(listed), sorted([one.ids[0], other.ids[0]]), "the ids")


@LIST.check
async def before_is_exclusive(subject: Subject) -> None:
    timeline = Timeline(subject)
    configs = [await timeline.put() for _ in range(3)]
    listed = await ids_of(subject.saver.alist(timeline.place, before=configs[1]))
    expect(listed, timeline.ids[:1], "the ids")
    expect(
        await ids_of(subject.saver.alist(timeline.place, before=configs[0])), [], "the ids before the first"
    )


@LIST.check
async def limit_of_one(subject: Subject) -> None:
    timeline = Timeline(subject)
    await timeline.put_many(3)
    expect(await ids_of(subject.saver.alist(timeline.place, limit=1)), timeline.ids[-1:], "the ids")


@LIST.check
async def limit_of_several(subject: Subject) -> None:
    timeline = Timeline(subject)
    await timeline.put_many(4)
    for limit in (0, 2, 4, 9):
        listed = await ids_of(subject.saver.alist(timeline.place, limit=limit))
        expect(listed, timeline.ids[::-1][:limit], f"the ids, limit {limit}")


@LIST.check
async def limit_counts_what_passes_filter_and_before(subject: Subject) -> None:
    timeline = Timeline(subject)
    configs = [await timeline.put(user="ann" if number % 2 else "bob") for number in range(6)]
    ids = timeline.ids
    listed = await ids_of(subject.saver.alist(timeline.place, before=configs[4], limit=2))
    expect(listed, [ids[3], ids[2]], "the ids with before and limit")
    listed = await ids_of(subject.saver.alist(timeline.place, filter={"user": "bob"}, limit=2))
    expect(listed, [ids[4], ids[2]], "the ids with filter and limit")


@LIST.check
async def thread_without_checkpoints_lists_nothing(subject: Subject) -> None:
    place = {"configurable": {"thread_id": new_name("thread")}}
    expect(await ids_of(subject.saver.alist(place)), [], "the ids")


@LIST.check
async def pending_writes_are_listed(subject: Subject) -> None:
    timeline = Timeline(subject)
    await subject.saver.aput_writes(await timeline.put(), [("a", 1)], "task")
    await timeline.put()
    listed = [pending(stored) async for stored in subject.saver.alist(timeline.place)]
    expect(listed, [[], [("task", "a", 1)]], "the pending writes")


@LIST.check
async def listing_may_be_left_early(subject: Subject) -> None:
    timeline = Timeline(subject)
    await timeline.put_many(3)
    async for stored in subject.saver.alist(timeline.place):
        expect(stored.checkpoint["id"], timeline.ids[-1], "the first id")
        break
    await timeline.put()
    expect(await timeline.stored_ids(), timeline.ids[::-1], "the ids after that")
