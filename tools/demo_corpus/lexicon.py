"""The words of the demo corpus as data: nouns, compound nouns, adjectives, places.

`NOUNS` holds every simple noun under its English word. `COMPOUNDS` lists which modifiers combine with which heads.
`semantics` has the semantic classes of the nouns. The only logic here builds the compound nouns; they take gender,
plural and declension from their head.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Noun:
    """A noun: English singular, German nominative singular, gender (m, f, n) and the irregular forms.

    `weak` is the ending of the weak declension (n-Deklination). `genitive` is the ending if it is irregular.
    """

    en: str
    de: str
    gender: str
    plural: str
    en_plural: str = ""
    weak: str = ""
    genitive: str = ""


@dataclass(frozen=True)
class Adjective:
    """An adjective. `stem` is set if the declined form drops a vowel (teuer, teur-), comparatives if irregular."""

    en: str
    de: str
    stem: str = ""
    comparative: str = ""
    en_comparative: str = ""


_NOUN_LIST = (
    # People, men (grammatical gender = natural gender)
    Noun("man", "Mann", "m", "Männer", "men"),
    Noun("boy", "Junge", "m", "Jungen", weak="n"),
    Noun("teacher", "Lehrer", "m", "Lehrer"),
    Noun("doctor", "Arzt", "m", "Ärzte"),
    Noun("neighbour", "Nachbar", "m", "Nachbarn", weak="n"),
    Noun("student", "Student", "m", "Studenten", weak="en"),
    Noun("colleague", "Kollege", "m", "Kollegen", weak="n"),
    Noun("farmer", "Bauer", "m", "Bauern", weak="n"),
    Noun("baker", "Bäcker", "m", "Bäcker"),
    Noun("painter", "Maler", "m", "Maler"),
    Noun("waiter", "Kellner", "m", "Kellner"),
    Noun("tourist", "Tourist", "m", "Touristen", weak="en"),
    Noun("guest", "Gast", "m", "Gäste"),
    Noun("pilot", "Pilot", "m", "Piloten", weak="en"),
    # People, women
    Noun("woman", "Frau", "f", "Frauen", "women"),
    Noun("nurse", "Krankenschwester", "f", "Krankenschwestern"),
    Noun("actress", "Schauspielerin", "f", "Schauspielerinnen"),
    Noun("saleswoman", "Verkäuferin", "f", "Verkäuferinnen", "saleswomen"),
    Noun("waitress", "Kellnerin", "f", "Kellnerinnen"),
    Noun("queen", "Königin", "f", "Königinnen"),
    # People, neuter in German
    Noun("child", "Kind", "n", "Kinder", "children"),
    Noun("girl", "Mädchen", "n", "Mädchen"),
    # Relatives
    Noun("father", "Vater", "m", "Väter"),
    Noun("brother", "Bruder", "m", "Brüder"),
    Noun("son", "Sohn", "m", "Söhne"),
    Noun("uncle", "Onkel", "m", "Onkel"),
    Noun("grandfather", "Großvater", "m", "Großväter"),
    Noun("friend", "Freund", "m", "Freunde"),
    Noun("mother", "Mutter", "f", "Mütter"),
    Noun("sister", "Schwester", "f", "Schwestern"),
    Noun("daughter", "Tochter", "f", "Töchter"),
    Noun("aunt", "Tante", "f", "Tanten"),
    Noun("grandmother", "Großmutter", "f", "Großmütter"),
    # Animals
    Noun("dog", "Hund", "m", "Hunde"),
    Noun("cat", "Katze", "f", "Katzen"),
    Noun("bird", "Vogel", "m", "Vögel"),
    Noun("horse", "Pferd", "n", "Pferde"),
    Noun("cow", "Kuh", "f", "Kühe"),
    Noun("rabbit", "Kaninchen", "n", "Kaninchen"),
    # Food and drink
    Noun("bread", "Brot", "n", "Brote"),
    Noun("butter", "Butter", "f", ""),
    Noun("cheese", "Käse", "m", ""),
    Noun("meat", "Fleisch", "n", ""),
    Noun("fish", "Fisch", "m", ""),
    Noun("rice", "Reis", "m", ""),
    Noun("soup", "Suppe", "f", "Suppen"),
    Noun("salad", "Salat", "m", "Salate"),
    Noun("jam", "Marmelade", "f", "Marmeladen"),
    Noun("cake", "Kuchen", "m", "Kuchen"),
    Noun("apple", "Apfel", "m", "Äpfel"),
    Noun("pear", "Birne", "f", "Birnen"),
    Noun("egg", "Ei", "n", "Eier"),
    Noun("banana", "Banane", "f", "Bananen"),
    Noun("carrot", "Karotte", "f", "Karotten"),
    Noun("orange", "Orange", "f", "Orangen"),
    Noun("cherry", "Kirsche", "f", "Kirschen"),
    Noun("lemon", "Zitrone", "f", "Zitronen"),
    Noun("strawberry", "Erdbeere", "f", "Erdbeeren"),
    Noun("tomato", "Tomate", "f", "Tomaten", "tomatoes"),
    Noun("potato", "Kartoffel", "f", "Kartoffeln", "potatoes"),
    Noun("milk", "Milch", "f", ""),
    Noun("water", "Wasser", "n", ""),
    Noun("coffee", "Kaffee", "m", ""),
    Noun("tea", "Tee", "m", ""),
    Noun("juice", "Saft", "m", "Säfte"),
    Noun("wine", "Wein", "m", "Weine"),
    Noun("beer", "Bier", "n", "Biere"),
    # Texts, art, ideas
    Noun("book", "Buch", "n", "Bücher"),
    Noun("newspaper", "Zeitung", "f", "Zeitungen"),
    Noun("letter", "Brief", "m", "Briefe"),
    Noun("message", "Nachricht", "f", "Nachrichten"),
    Noun("story", "Geschichte", "f", "Geschichten"),
    Noun("report", "Bericht", "m", "Berichte"),
    Noun("joke", "Witz", "m", "Witze"),
    Noun("fairy tale", "Märchen", "n", "Märchen"),
    Noun("poem", "Gedicht", "n", "Gedichte"),
    Noun("novel", "Roman", "m", "Romane", genitive="s"),
    Noun("song", "Lied", "n", "Lieder"),
    Noun("film", "Film", "m", "Filme", genitive="s"),
    Noun("picture", "Bild", "n", "Bilder"),
    Noun("question", "Frage", "f", "Fragen"),
    Noun("problem", "Problem", "n", "Probleme"),
    Noun("plan", "Plan", "m", "Pläne"),
    # Furniture, parts of the house, things
    Noun("table", "Tisch", "m", "Tische"),
    Noun("chair", "Stuhl", "m", "Stühle"),
    Noun("bed", "Bett", "n", "Betten"),
    Noun("shelf", "Regal", "n", "Regale", "shelves"),
    Noun("cupboard", "Schrank", "m", "Schränke"),
    Noun("lamp", "Lampe", "f", "Lampen"),
    Noun("mirror", "Spiegel", "m", "Spiegel"),
    Noun("door", "Tür", "f", "Türen"),
    Noun("window", "Fenster", "n", "Fenster"),
    Noun("wall", "Wand", "f", "Wände"),
    Noun("clock", "Uhr", "f", "Uhren"),
    Noun("radio", "Radio", "n", "Radios"),
    Noun("computer", "Computer", "m", "Computer"),
    Noun("telephone", "Telefon", "n", "Telefone"),
    Noun("camera", "Kamera", "f", "Kameras"),
    Noun("key", "Schlüssel", "m", "Schlüssel"),
    Noun("umbrella", "Regenschirm", "m", "Regenschirme"),
    Noun("ticket", "Fahrkarte", "f", "Fahrkarten"),
    Noun("map", "Karte", "f", "Karten"),
    Noun("gift", "Geschenk", "n", "Geschenke"),
    Noun("flower", "Blume", "f", "Blumen"),
    Noun("cup", "Tasse", "f", "Tassen"),
    Noun("glass", "Glas", "n", "Gläser"),
    Noun("bottle", "Flasche", "f", "Flaschen"),
    Noun("plate", "Teller", "m", "Teller"),
    Noun("basket", "Korb", "m", "Körbe"),
    Noun("bag", "Tasche", "f", "Taschen"),
    Noun("suitcase", "Koffer", "m", "Koffer"),
    # Clothes
    Noun("coat", "Mantel", "m", "Mäntel"),
    Noun("jacket", "Jacke", "f", "Jacken"),
    Noun("shirt", "Hemd", "n", "Hemden"),
    Noun("dress", "Kleid", "n", "Kleider"),
    Noun("hat", "Hut", "m", "Hüte"),
    Noun("scarf", "Schal", "m", "Schals", "scarves", genitive="s"),
    Noun("shoe", "Schuh", "m", "Schuhe"),
    # Vehicles
    Noun("car", "Auto", "n", "Autos"),
    Noun("bicycle", "Fahrrad", "n", "Fahrräder"),
    Noun("bus", "Bus", "m", "Busse", genitive="ses"),
    Noun("train", "Zug", "m", "Züge"),
    Noun("ship", "Schiff", "n", "Schiffe"),
    # Places
    Noun("house", "Haus", "n", "Häuser"),
    Noun("kitchen", "Küche", "f", "Küchen"),
    Noun("living room", "Wohnzimmer", "n", "Wohnzimmer"),
    Noun("bedroom", "Schlafzimmer", "n", "Schlafzimmer"),
    Noun("cellar", "Keller", "m", "Keller"),
    Noun("garden", "Garten", "m", "Gärten"),
    Noun("office", "Büro", "n", "Büros"),
    Noun("school", "Schule", "f", "Schulen"),
    Noun("church", "Kirche", "f", "Kirchen"),
    Noun("museum", "Museum", "n", "Museen"),
    Noun("hospital", "Krankenhaus", "n", "Krankenhäuser"),
    Noun("supermarket", "Supermarkt", "m", "Supermärkte"),
    Noun("library", "Bibliothek", "f", "Bibliotheken"),
    Noun("restaurant", "Restaurant", "n", "Restaurants"),
    Noun("hotel", "Hotel", "n", "Hotels"),
    Noun("theatre", "Theater", "n", "Theater"),
    Noun("cinema", "Kino", "n", "Kinos"),
    Noun("park", "Park", "m", "Parks", genitive="s"),
    Noun("market", "Markt", "m", "Märkte"),
    Noun("train station", "Bahnhof", "m", "Bahnhöfe"),
    Noun("airport", "Flughafen", "m", "Flughäfen"),
    Noun("forest", "Wald", "m", "Wälder"),
    Noun("beach", "Strand", "m", "Strände"),
    Noun("lake", "See", "m", "Seen"),
    Noun("island", "Insel", "f", "Inseln"),
    Noun("bridge", "Brücke", "f", "Brücken"),
    Noun("castle", "Schloss", "n", "Schlösser"),
    Noun("village", "Dorf", "n", "Dörfer"),
    Noun("tree", "Baum", "m", "Bäume"),
    # Time
    Noun("day", "Tag", "m", "Tage"),
    Noun("week", "Woche", "f", "Wochen"),
    Noun("hour", "Stunde", "f", "Stunden"),
    Noun("page", "Seite", "f", "Seiten"),
)

NOUNS: dict[str, Noun] = {noun.en: noun for noun in _NOUN_LIST}
"""English singular -> noun, for every simple noun."""

PARENTS = Noun("parents", "Eltern", "m", "Eltern", "parents")
"""A noun without singular. It is always drawn in the plural."""

# Modifier -> its form as the first part of a German compound, with the linking element.
MODIFIERS: dict[str, str] = {
    "apple": "Apfel",
    "cherry": "Kirsch",
    "orange": "Orangen",
    "banana": "Bananen",
    "lemon": "Zitronen",
    "pear": "Birnen",
    "strawberry": "Erdbeer",
    "carrot": "Karotten",
    "tomato": "Tomaten",
    "potato": "Kartoffel",
    "kitchen": "Küchen",
    "garden": "Garten",
    "office": "Büro",
    "school": "Schul",
    "bedroom": "Schlafzimmer",
    "living room": "Wohnzimmer",
    "cellar": "Keller",
    "winter": "Winter",
    "summer": "Sommer",
    "leather": "Leder",
    "wool": "Woll",
    "city": "Stadt",
    "village": "Dorf",
    "castle": "Schloss",
    "hotel": "Hotel",
}

# Each line: modifiers x heads. Every combination is a real compound.
_COMPOUND_BLOCKS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("apple", "cherry", "orange", "banana", "lemon", "pear", "strawberry"), ("cake", "juice", "jam")),
    (("carrot", "tomato", "potato"), ("soup", "salad")),
    (("carrot",), ("cake", "juice")),
    (("tomato",), ("juice",)),
    (("kitchen", "garden", "office", "school"), ("table", "chair", "door")),
    (("kitchen", "office", "bedroom", "living room", "cellar"), ("lamp", "window", "door", "cupboard")),
    (("office", "cellar", "hotel"), ("key",)),
    (("winter", "summer", "leather"), ("coat", "jacket", "hat", "shoe")),
    (("winter", "wool", "summer"), ("dress", "scarf")),
    (("city", "castle", "hotel"), ("park", "garden", "restaurant")),
    (("city", "village", "school"), ("library", "theatre")),
    (("city", "castle", "village"), ("museum", "church")),
)

COMPOUNDS: dict[str, tuple[str, ...]] = {
    head: tuple(dict.fromkeys(m for mods, heads in _COMPOUND_BLOCKS if head in heads for m in mods))
    for head in dict.fromkeys(h for _, heads in _COMPOUND_BLOCKS for h in heads)
}
"""Head -> the modifiers that it combines with."""


def compound(modifier: str, head: Noun) -> Noun:
    """Return the compound noun. The head decides gender, plural and declension, the modifier the linking element."""
    first = MODIFIERS[modifier]
    plural = first + head.plural[0].lower() + head.plural[1:] if head.plural else ""
    english_plural = f"{modifier} {head.en_plural}" if head.en_plural else ""
    de = first + head.de[0].lower() + head.de[1:]
    return Noun(f"{modifier} {head.en}", de, head.gender, plural, english_plural, head.weak, head.genitive)
