"""Entities that nobody asks for: others of the same kinds, who make it hard to find the right one."""

from __future__ import annotations

import random

from unstuck_memory.values import NewEntity

_LISTS = """
first: Ada, Ben, Carla, Dmitri, Elif, Farah, Goran, Hana, Ivan, Julia, Kofi, Lars, Mina, Noor, Olu, Pavel, Quinn, Sven, Tara, Uma, Viktor, Wren, Xenia, Yusuf, Zoe
last: Abbott, Berger, Costa, Dahl, Evans, Fischer, Gomez, Hughes, Ivanov, Jansen, Khan, Larsen, Moreau, Novak, Ortiz, Petrov, Rossi, Silva, Tanaka, Varga, Weber
cities: Oslo, Lyon, Porto, Leeds, Turin, Ghent, Kyoto, Quito, Cairo, Perth, Austin, Dublin, Vienna, Prague, Malmo, Nantes, Bergen, Cork, York, Basel
days: Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday
months: January, February, March, April, May, June, July, August, September, October, November, December
jobs: nurse, accountant, engineer, designer, teacher, plumber, analyst, chef, dentist, lawyer, gardener, translator, architect, driver, musician
hobbies: chess, the violin, sailing, pottery, cycling, baking, bird watching, climbing, photography, the piano, running, knitting, swimming
foods: peanuts, shellfish, milk, wheat, strawberries, mushrooms, eggs, soy
languages: Go, Kotlin, Python, Rust, Java, TypeScript, Elixir
databases: PostgreSQL, MySQL, Redis, MongoDB, SQLite, Cassandra
subjects: invoices, emails, thumbnails, search, payments, reports, logins, exports, carts, notifications, prices, stock, reviews, shipping
materials: oak, steel, pine, brass, plastic, glass
colours: green, blue, grey, red, white, black, yellow
rooms: kitchen, cellar, attic, hall, bathroom, garage, study, garden
objects: fridge, oven, boiler, lamp, bicycle, printer, desk, heater, camera, vacuum cleaner, dishwasher, armchair, router, stove, kettle, mower
faults: a disk was full, a certificate expired, memory ran out, a lock was held too long, a queue was blocked
"""
_WORDS = {
    name: words.split(", ") for name, words in (line.split(": ") for line in _LISTS.split("\n") if line)
}


class _Chance(random.Random):
    def one(self, words: str) -> str:
        """One of a list of words."""
        return self.choice(_WORDS[words])


def crowd(count: int) -> list[NewEntity]:
    """The same each time: half of them with one observation, half with up to sixteen."""
    chance = _Chance(7)
    makers = (_person, _person, _service, _object, _trip, _ticket)
    found: dict[str, NewEntity] = {}
    while len(found) < count:
        name, kind, observations = chance.choice(makers)(chance)
        chance.shuffle(observations)
        some = observations[:1] if chance.random() < 0.5 else observations
        found.setdefault(name, NewEntity(name=name, entity_type=kind, observations=tuple(some)))
    return list(found.values())


def _person(by: _Chance) -> tuple[str, str, list[str]]:
    pick, first = by.choice, by.one("first")
    return f"{first} {by.one('last')}", "person", [
        f"{first} works as a {by.one('jobs')} in {by.one('cities')}.",
        f"{first}'s birthday is on the {by.randint(1, 28)} of {by.one('months')}.",
        f"{first} spends {by.one('days')}s with {by.one('hobbies')}.",
        f"{first} is allergic to {by.one('foods')}.",
        f"{first} joined in {by.one('months')} {by.randint(2010, 2024)}.",
        f"{first}'s manager is {by.one('first')} {by.one('last')}.",
        f"{first} has a {pick(('cat', 'dog', 'horse', 'parrot'))} named {by.one('first')}.",
        f"{first} lives with a {pick(('sister', 'brother', 'husband', 'wife'))} in {by.one('cities')}.",
        f"{first} prefers {pick(('short emails', 'phone calls', 'written notes', 'video calls'))}.",
        f"{first} drinks {pick(('tea', 'coffee', 'red wine', 'only water'))} after {pick(('lunch', 'dinner'))}.",
        f"{first} is on leave in {by.one('months')}.",
        f"{first} speaks {pick(('French', 'German', 'Polish'))} and {pick(('Dutch', 'Arabic', 'Greek'))}.",
        f"{first} lent me a {pick(('book', 'drill', 'tent', 'pan'))}.",
        f"{first} travels by {pick(('train', 'bus', 'bike', 'car'))}.",
        f"{first} sees Dr. {by.one('last')} every {by.one('months')}.",
        f"{first}'s phone number ends in {by.randint(1000, 9999)}.",
    ]  # fmt: skip


def _service(by: _Chance) -> tuple[str, str, list[str]]:
    pick, subject = by.choice, by.one("subjects")
    part = pick(("api", "worker", "gateway", "sync", "cache"))
    return f"{subject}-{part}-{by.randint(1, 99)}", "service", [
        f"It is written in {by.one('languages')} and stores its data in {by.one('databases')}.",
        f"It listens on port {by.randint(1024, 9999)}.",
        f"Its timeout is {by.randint(1, 60)} seconds.",
        f"The team on call is {pick(('Heron', 'Osprey', 'Falcon', 'Kestrel'))}.",
        f"Deployments are on {by.one('days')}s only.",
        f"It failed in {by.one('months')} because {by.one('faults')}.",
        f"Logs are kept for {by.randint(3, 90)} days.",
        f"It handles {by.randint(10, 900)} requests a second.",
        f"Backups run at {by.randint(0, 23)} o'clock.",
        f"Its dashboard is called {subject}-overview.",
        f"The database has {by.randint(2, 90)} million rows.",
        f"Retries are limited to {by.randint(2, 9)}.",
        f"Secrets come from Vault under {subject}/key.",
        f"Its owner is {by.one('first')} {by.one('last')}.",
        f"An upgrade is planned for {by.one('months')}.",
    ]  # fmt: skip


def _object(by: _Chance) -> tuple[str, str, list[str]]:
    pick, thing = by.choice, by.one("objects")
    age = pick(("old", "new", "small", "second", "spare"))
    return f"{age} {thing} no. {by.randint(1, 300)}", "object", [
        f"The {thing} is made of {by.one('materials')} and is {by.one('colours')}.",
        f"It stands in the {by.one('rooms')}.",
        f"Its warranty ends in {by.one('months')} {by.randint(2024, 2030)}.",
        f"It cost {by.randint(20, 900)} pounds.",
        f"It was repaired by {by.one('first')} {by.one('last')}.",
        f"The {thing} makes a noise at night.",
        f"Its filter is cleaned each {by.one('months')}.",
        f"It uses {by.randint(10, 2000)} watts.",
        f"The manual is in the {by.one('rooms')}.",
        f"It was bought in {by.one('cities')}.",
    ]  # fmt: skip


def _trip(by: _Chance) -> tuple[str, str, list[str]]:
    pick, city = by.choice, by.one("cities")
    return f"Trip to {city} {by.randint(2015, 2026)}", "trip", [
        f"The flight to {city} leaves on the {by.randint(1, 28)} of {by.one('months')}.",
        f"The hotel is beside the {pick(('market', 'station', 'harbour', 'cathedral', 'museum'))}.",
        f"We meet {by.one('first')} for dinner on {by.one('days')}.",
        f"Tickets cost {by.randint(20, 400)} euros.",
        f"The {pick(('museum', 'beach', 'castle', 'library'))} is closed on {by.one('days')}s.",
        f"Luggage is limited to {by.randint(8, 30)} kilos.",
        f"Payment is by {pick(('card', 'cash', 'bank transfer'))}.",
        f"The key is with {by.one('first')} {by.one('last')}.",
        f"It rained in {city} all week.",
        f"The train takes {by.randint(1, 9)} hours.",
    ]  # fmt: skip


def _ticket(by: _Chance) -> tuple[str, str, list[str]]:
    pick = by.choice
    fault = pick(("loses data", "is slow", "shows the wrong total", "fails on phones", "refuses postcodes"))
    return f"Ticket {by.randint(1000, 9999)}", "task", [
        f"The page for {by.one('subjects')} {fault}.",
        f"It is due on the {by.randint(1, 28)} of {by.one('months')}.",
        f"{by.one('first')} {by.one('last')} works on it.",
        f"The fix must be reviewed by {by.one('first')}.",
        f"Customers in {by.one('cities')} are affected.",
    ]  # fmt: skip
