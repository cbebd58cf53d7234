"""The words that go together, as data: semantic classes of nouns, adjectives per class, places, names.

The classes make the sentences plausible. The verb tables (`verbs.py`) name the classes of each verb's subjects and
objects. `ADJECTIVES_BY_CLASS` lists the adjectives that a noun of a class can take.
"""

from __future__ import annotations

from typing import NamedTuple

from demo_corpus.lexicon import Adjective

_CLASS_TABLE: dict[str, str] = {
    "man": "man, boy, teacher, doctor, neighbour, student, colleague, farmer, baker, painter, waiter, tourist, guest,"
    " pilot",
    "woman": "woman, nurse, actress, saleswoman, waitress, queen",
    "youth": "child, girl",
    "host": "doctor, neighbour, teacher, baker, colleague, farmer, painter, nurse, queen",
    "relative": "father, brother, son, uncle, grandfather, friend, mother, sister, daughter, aunt, grandmother",
    "animal": "dog, cat, bird, horse, cow, rabbit",
    "pet": "dog, cat, bird, rabbit",
    "food": "bread, cheese, meat, fish, rice, soup, salad, cake, apple, pear, egg, banana, tomato, potato, butter, jam,"
    " cake, jam, carrot, orange, cherry, strawberry",
    "sweet": "apple, pear, orange, cherry, strawberry, banana, cake, jam, juice",
    "dish": "soup, salad, cake, fish, cheese, meat, bread",
    "cooked": "soup, rice, meat, fish, egg, potato",
    "baked": "bread, cake",
    "drink": "milk, water, coffee, tea, juice, wine, beer",
    "grocery": "lemon, strawberry, carrot, orange, bread, butter, cheese, fish, cake, apple, pear, banana, "
    "tomato, potato,"
    " milk, wine, juice, jam, flower",
    "readable": "book, newspaper, letter, message, story, report, poem, novel, fairy tale",
    "writable": "letter, message, story, report, poem, novel, book",
    "sendable": "letter, gift, picture, report, flower, map",
    "givable": "gift, book, flower, key, picture, map, ticket, umbrella, camera, bicycle, apple, hat",
    "lendable": "book, bicycle, car, camera, umbrella, bag, suitcase, computer, map",
    "explainable": "joke, question, problem, plan, story, poem, map, picture",
    "tellable": "story, joke, fairy tale",
    "topic": "film, book, problem, plan, question, picture, report, song, novel, story, joke, fairy tale",
    "song": "song",
    "audible": "joke, fairy tale, song, bird, dog, cow, radio, story, question, train, telephone",
    "picture": "picture, tree, castle, flower, horse, bridge",
    "small": "key, umbrella, ticket, map, camera, bag, hat, letter, scarf, book, gift",
    "goods": "book, lamp, chair, table, clock, radio, computer, camera, bag, suitcase, coat, jacket, shirt, dress, hat,"
    " scarf, shoe, bicycle, car, house, mirror, bed, picture, telephone",
    "clothes": "coat, jacket, shirt, dress, hat, scarf, shoe",
    "openable": "door, window, bottle, suitcase, letter, gift, bag, cupboard",
    "closable": "door, window, bottle, suitcase, bag, cupboard",
    "switchable": "lamp, radio, computer",
    "reparable": "car, bicycle, clock, radio, computer, camera, chair, lamp, door, bridge",
    "washable": "car, shirt, dress, cup, glass, plate, bottle, apple, dog, scarf",
    "cleanable": "kitchen, window, bicycle, lamp, mirror, shoe, office",
    "room": "kitchen, living room, bedroom, cellar, office",
    "portable": "suitcase, basket, bag, chair, table, bottle, lamp, child",
    "rubbish": "newspaper, letter, bottle, shoe, map, bread, flower",
    "built": "house, bridge, church, school, shelf, table, castle, ship",
    "sight": "museum, castle, church, island, village, theatre, market, library",
    "visible": "castle, church, ship, bridge, tree, lake, forest, village, picture, train, bird, horse, cow,"
    " rabbit, island",
    "image": "picture, map",
    "crossing": "bridge",
    "nature": "tree, flower",
    "thought": "question, problem, plan",
    "vehicle": "train, bus, ship",
    "expected": "bus, train, letter, message, gift",
    "pleasure": "film, gift, letter, cake, soup, story",
    "flat": "book, newspaper, letter, key, map, ticket, hat, jacket, scarf, umbrella, picture",
    "standing": "cup, glass, bottle, plate, lamp, radio, computer, basket, telephone",
    "hanging": "picture, clock, mirror, lamp, map, coat",
    "support": "table, shelf, chair, bed, cupboard",
    "surface": "table, shelf, cupboard",
    "container": "bag, suitcase, basket, cupboard",
    "furniture": "table, chair, bed, shelf, cupboard, lamp, mirror, clock, radio",
    "public": "house, school, church, museum, hospital, supermarket, library, restaurant, hotel, theatre, cinema, park,"
    " market, forest, beach, lake, island, bridge, castle, village, garden",
    "institution": "school, church, museum, hospital, supermarket, library, hotel, theatre, cinema, castle, house",
    "countable": "book, letter, flower, chair, cup, glass, bottle, plate, picture, apple, egg, tree, house, horse, cow,"
    " bird, ticket, lamp, song, poem",
    "compared furniture": "table, chair, bed, lamp, cupboard, shelf, mirror, clock",
    "compared buildings": "house, bridge, church, castle, museum, hotel, school, library, theatre, park, restaurant",
    "compared vehicles": "car, bicycle, bus, train, ship",
    "compared clothes": "coat, jacket, dress, hat, shirt, scarf, bag, suitcase",
    "dear": "lamp, coat, jacket, shirt, dress, hat, bag, clock, chair, umbrella, radio, suitcase, mirror",
    "affordable": "book, cake, cup, ticket, map, novel, soup, scarf, salad, glass",
    "part": "door, window, garden, wall, key",
    "owner_of_parts": "house, hotel, school, church, castle, library, office, museum, restaurant",
}

CLASSES: dict[str, tuple[str, ...]] = {name: tuple(words.split(", ")) for name, words in _CLASS_TABLE.items()}
"""Semantic class -> the English words of its nouns."""

MASS: frozenset[str] = frozenset(
    {
        "bread",
        "butter",
        "cheese",
        "meat",
        "fish",
        "rice",
        "soup",
        "salad",
        "jam",
        "milk",
        "water",
        "coffee",
        "tea",
        "juice",
        "wine",
        "beer",
    }
)
"""Nouns that have no plural, and no article when indefinite. This also holds for compounds with these heads."""

ADJECTIVES: dict[str, Adjective] = {
    adjective.en: adjective
    for adjective in (
        Adjective("old", "alt", comparative="älter"),
        Adjective("young", "jung", comparative="jünger"),
        Adjective("new", "neu"),
        Adjective("big", "groß", comparative="größer", en_comparative="bigger"),
        Adjective("small", "klein"),
        Adjective("friendly", "freundlich", en_comparative="friendlier"),
        Adjective("famous", "berühmt", en_comparative="more famous"),
        Adjective("clever", "klug", comparative="klüger"),
        Adjective("rich", "reich"),
        Adjective("tired", "müde", stem="müd", en_comparative="more tired"),
        Adjective("sick", "krank", comparative="kränker"),
        Adjective("happy", "glücklich", en_comparative="happier"),
        Adjective("expensive", "teuer", stem="teur", comparative="teurer", en_comparative="more expensive"),
        Adjective("cheap", "billig"),
        Adjective("beautiful", "schön", en_comparative="more beautiful"),
        Adjective("heavy", "schwer", en_comparative="heavier"),
        Adjective("modern", "modern", en_comparative="more modern"),
        Adjective("red", "rot"),
        Adjective("blue", "blau"),
        Adjective("green", "grün"),
        Adjective("black", "schwarz"),
        Adjective("white", "weiß"),
        Adjective("brown", "braun"),
        Adjective("yellow", "gelb"),
        Adjective("fresh", "frisch"),
        Adjective("good", "gut", comparative="besser", en_comparative="better"),
        Adjective("warm", "warm", comparative="wärmer"),
        Adjective("cold", "kalt", comparative="kälter"),
        Adjective("sweet", "süß"),
        Adjective("interesting", "interessant", en_comparative="more interesting"),
        Adjective("boring", "langweilig", en_comparative="more boring"),
        Adjective("long", "lang", comparative="länger"),
        Adjective("short", "kurz", comparative="kürzer"),
        Adjective("quiet", "ruhig"),
        Adjective("hungry", "hungrig", en_comparative="hungrier"),
        Adjective("dark", "dunkel", stem="dunkl", comparative="dunkler"),
        Adjective("empty", "leer"),
        Adjective("strong", "stark", comparative="stärker"),
        Adjective("poor", "arm", comparative="ärmer"),
        Adjective("tall", "groß", comparative="größer"),
    )
}
"""English word -> adjective."""

_THING = "old, new, big, small, expensive, cheap, beautiful, modern, red, blue, green, black, white, brown, yellow"
_PERSON = "old, young, friendly, famous, clever, rich, poor, tired, sick, happy, strong, tall"
_ADJECTIVE_TABLE: tuple[tuple[str, str], ...] = (
    ("man, woman", _PERSON),
    ("youth", "small, young, friendly, clever, tired, sick, happy, hungry"),
    ("relative", "sick, rich, tired, clever, friendly, happy"),
    ("animal", "old, young, small, big, black, white, brown, hungry, beautiful, tired, strong"),
    ("sweet", "sweet, sweet, fresh, good, cold, expensive, cheap"),
    ("drink", "cold, good, expensive, cheap, warm"),
    ("food", "fresh, good, cold, expensive, cheap"),
    ("image", "old, new, big, small, expensive, cheap, beautiful, modern"),
    ("crossing", "old, new, big, small, long, beautiful, famous"),
    ("nature", "big, small, beautiful, old"),
    ("thought", "new, old, interesting, good"),
    ("readable", "new, old, interesting, boring, long, short, beautiful, good"),
    ("topic", "new, old, interesting, boring, long, short, beautiful, good"),
    ("clothes", f"{_THING}, warm, long, short"),
    ("container", f"{_THING}, heavy, empty"),
    ("room", "big, small, warm, cold, dark, modern, new, quiet, empty"),
    ("institution, sight", "old, new, big, small, beautiful, modern, famous, quiet"),
    ("public", "big, small, beautiful, famous, quiet, old, dark"),
    ("vehicle", "old, new, big, modern, empty"),
)

ADJECTIVES_BY_CLASS: dict[str, tuple[str, ...]] = {
    name: tuple(words.split(", ")) for classes, words in _ADJECTIVE_TABLE for name in classes.split(", ")
}
"""Semantic class -> adjectives that its nouns can take. A noun's first class in this order counts."""

THING_ADJECTIVES: tuple[str, ...] = tuple(_THING.split(", "))
"""Adjectives for nouns in none of these classes."""


class Place(NamedTuple):
    """The prepositions of a place: English "in/at/on", German for the location, German for the direction."""

    en: str
    location: str
    direction: str


_PLACE_TABLE: tuple[tuple[str, Place], ...] = (
    (
        "kitchen, living room, bedroom, cellar, garden, office, house, museum, hospital, supermarket, "
        "library, restaurant,"
        " hotel, theatre, cinema, park, church, forest, school, village",
        Place("in", "in", "in"),
    ),
    ("train station, airport", Place("at", "an", "zu")),
    ("beach, lake", Place("at", "an", "an")),
    ("market", Place("at", "auf", "auf")),
    ("island", Place("on", "auf", "auf")),
    ("bridge", Place("on", "auf", "auf")),
    ("castle", Place("in", "in", "zu")),
)

PLACES: dict[str, Place] = {noun: place for nouns, place in _PLACE_TABLE for noun in nouns.split(", ")}
"""Place noun -> its prepositions."""

ROOMS_AT_HOME: tuple[str, ...] = ("kitchen", "living room", "bedroom", "cellar", "garden", "office", "library")
PUBLIC_PLACES: tuple[str, ...] = tuple(noun for noun in PLACES if noun not in ROOMS_AT_HOME or noun == "library")

MALE_NAMES: tuple[str, ...] = ("Peter", "Paul", "Martin", "Stefan", "Karl", "David", "Simon", "Oliver", "Robert")
FEMALE_NAMES: tuple[str, ...] = ("Anna", "Maria", "Julia", "Laura", "Lena", "Emma", "Nina", "Clara", "Eva")
SURNAMES: tuple[str, ...] = ("Berger", "Wagner", "Becker", "Krüger", "Hoffmann", "Neumann", "Lehmann", "Schneider")
TOWNS: tuple[str, ...] = ("Berlin", "Hamburg", "Bremen", "Dresden", "Potsdam", "Bonn", "Weimar", "Erfurt", "Rostock")

# Parts of made-up names, which the translation copies.
NAME_STARTS: tuple[str, ...] = ("Ta", "Me", "Li", "So", "Ka", "Ri", "Ve", "No", "Bi", "Du")
NAME_MIDDLES: tuple[str, ...] = ("ri", "lo", "mi", "ve", "no", "da")
MALE_ENDS: tuple[str, ...] = ("n", "ro", "nko")
FEMALE_ENDS: tuple[str, ...] = ("na", "la", "tha")
SURNAME_STARTS: tuple[str, ...] = ("Stein", "Wald", "Linden", "Rosen", "Gold", "Winter", "Birken", "Falken", "Hagen")
SURNAME_ENDS: tuple[str, ...] = ("mann", "bach", "hofer", "berger", "müller", "maier")
TOWN_STARTS: tuple[str, ...] = ("Roden", "Linden", "Alten", "Eber", "Falken", "Hirsch", "Winter", "Grün", "Ahlen")
TOWN_ENDS: tuple[str, ...] = ("burg", "heim", "dorf", "feld", "berg", "stadt", "hausen")

MONTHS: tuple[tuple[str, str], ...] = (
    ("January", "Januar"),
    ("February", "Februar"),
    ("March", "März"),
    ("April", "April"),
    ("May", "Mai"),
    ("June", "Juni"),
    ("July", "Juli"),
    ("August", "August"),
    ("September", "September"),
    ("October", "Oktober"),
    ("November", "November"),
    ("December", "Dezember"),
)
WEEKDAYS: tuple[tuple[str, str], ...] = (
    ("Monday", "Montag"),
    ("Tuesday", "Dienstag"),
    ("Wednesday", "Mittwoch"),
    ("Thursday", "Donnerstag"),
    ("Friday", "Freitag"),
    ("Saturday", "Samstag"),
    ("Sunday", "Sonntag"),
)

MANNERS: dict[str, str] = {
    "quickly": "schnell",
    "slowly": "langsam",
    "carefully": "vorsichtig",
    "quietly": "leise",
    "loudly": "laut",
}
MANNERS_OF_VERB: dict[str, str] = {
    "open": "carefully quietly slowly quickly",
    "close": "carefully quietly slowly quickly",
    "eat": "slowly quickly",
    "drink": "slowly quickly",
    "run": "quickly slowly",
    "drive": "slowly quickly carefully",
    "sing": "quietly loudly",
    "talk": "quietly loudly",
    "laugh": "quietly loudly",
    "cry": "quietly loudly",
    "carry": "carefully slowly",
    "wash": "carefully quickly",
    "lay": "carefully quietly quickly",
    "place": "carefully quietly quickly",
    "write": "quickly slowly",
    "answer": "quickly quietly",
    "hang": "carefully",
    "work": "slowly quickly carefully",
    "swim": "slowly quickly",
    "tidy|up": "quickly",
    "read": "slowly quickly quietly",
    "follow": "slowly quietly",
}
"""English verb -> the manners that go with it."""

_HOME = "kitchen, living room, bedroom, garden, office"
_PUBLIC = "park, library, restaurant, hotel, train station, airport, market, beach, museum, theatre"
PLACES_OF_VERB: dict[str, tuple[str, ...]] = {
    verb: tuple(places.split(", "))
    for verb, places in {
        "read": f"{_HOME}, park, library",
        "write": f"{_HOME}, library, hotel",
        "eat": "kitchen, restaurant, garden",
        "drink": "kitchen, restaurant, garden, hotel",
        "order": "restaurant, hotel",
        "buy": "market, supermarket",
        "sell": "market",
        "find": f"{_HOME}, cellar, park, forest",
        "lose": _PUBLIC,
        "forget": f"{_PUBLIC}, school",
        "see": _PUBLIC,
        "meet": _PUBLIC,
        "wash": "kitchen, garden",
        "cook": "kitchen, restaurant",
        "bake": "kitchen, restaurant",
        "look for": f"{_HOME}, cellar",
        "repair": "garden, cellar, office",
        "sleep": "bedroom, living room, garden, hotel, train station",
        "work": f"office, {_PUBLIC}, hospital, school",
        "dance": "living room, garden, theatre, park",
        "sing": "church, theatre, garden, kitchen",
        "swim": "lake",
        "rest": "garden, bedroom, living room, hotel, park",
        "play": "garden, park, living room, beach",
        "paint": "garden, park, forest",
        "arrive": "train station, airport",
        "wait": _PUBLIC,
        "talk": f"{_PUBLIC}, {_HOME}, school",
        "laugh": "theatre, cinema, garden, school",
    }.items()
}
"""English verb -> the places where the action happens."""

HANGING_SPOTS: tuple[tuple[str, str, str], ...] = (
    ("on", "an", "wall"),
    ("over", "über", "bed"),
    ("over", "über", "table"),
    ("next to", "neben", "door"),
    ("next to", "neben", "window"),
    ("next to", "neben", "mirror"),
)
"""Where a thing can hang: English preposition, German preposition, noun."""
AROUND: tuple[tuple[str, str], ...] = (
    ("on", "auf"),
    ("under", "unter"),
    ("next to", "neben"),
    ("behind", "hinter"),
    ("in front of", "vor"),
)
"""Two-way prepositions for things on and around furniture."""
