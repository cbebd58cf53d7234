"""The verbs as data: irregular English and German forms, and the subjects, objects and complements of each verb.

English "turn|on" has a movable particle ("turn it on"); German "ein|schalten" has a separable prefix. `subjects` and
`objects` name semantic classes (`semantics.CLASSES`).
"""

from __future__ import annotations

from dataclasses import dataclass

from demo_corpus.lexicon import Noun


@dataclass(frozen=True)
class Verb:
    """A verb with its principal parts and its frame.

    `perfect` is the Partizip II. `stem` is the stem of the second and third person singular if its vowel changes.
    `past` and `participle` are English forms. `english_preposition`, `preposition` and `case` describe a prepositional
    object (case 1 accusative, 2 dative). `modes` names the set of tenses and modal verbs that go with the verb.
    """

    en: str
    past: str
    participle: str
    de: str
    perfect: str
    stem: str = ""
    aux: str = "haben"
    subjects: str = "person"
    objects: str = ""
    recipients: str = ""
    english_preposition: str = ""
    preposition: str = ""
    case: int = 1
    modes: str = "action"
    reflexive: bool = False

    @property
    def prefix(self) -> str:
        """The separable prefix, or the empty string."""
        return self.de.partition("|")[0] if "|" in self.de else ""

    @property
    def infinitive(self) -> str:
        """The infinitive without a separable prefix."""
        return self.de.rpartition("|")[2]


ACCUSATIVE: tuple[Verb, ...] = (
    Verb("eat", "ate", "eaten", "essen", "gegessen", "iss", objects="food"),
    Verb("drink", "drank", "drunk", "trinken", "getrunken", objects="drink"),
    Verb("read", "read", "read", "lesen", "gelesen", "lies", objects="readable"),
    Verb("write", "wrote", "written", "schreiben", "geschrieben", objects="writable"),
    Verb("buy", "bought", "bought", "kaufen", "gekauft", objects="goods grocery"),
    Verb("sell", "sold", "sold", "verkaufen", "verkauft", objects="goods grocery"),
    Verb("order", "ordered", "ordered", "bestellen", "bestellt", objects="dish drink"),
    Verb("open", "opened", "opened", "öffnen", "geöffnet", objects="openable"),
    Verb("close", "closed", "closed", "schließen", "geschlossen", objects="closable"),
    Verb("find", "found", "found", "finden", "gefunden", modes="event", objects="small"),
    Verb("look for", "looked for", "looked for", "suchen", "gesucht", objects="small"),
    Verb("lose", "lost", "lost", "verlieren", "verloren", modes="event", objects="small"),
    Verb("forget", "forgot", "forgotten", "vergessen", "vergessen", "vergiss", modes="event", objects="small"),
    Verb("see", "saw", "seen", "sehen", "gesehen", "sieh", modes="sense", objects="visible human"),
    Verb("hear", "heard", "heard", "hören", "gehört", modes="sense", objects="audible"),
    Verb("know", "knew", "known", "kennen", "gekannt", modes="state", objects="human sight"),
    Verb("love", "loved", "loved", "lieben", "geliebt", modes="state", objects="family pet"),
    Verb("visit", "visited", "visited", "besuchen", "besucht", objects="family sight"),
    Verb("meet", "met", "met", "treffen", "getroffen", "triff", objects="human"),
    Verb("invite", "invited", "invited", "ein|laden", "eingeladen", "läd", objects="human family"),
    Verb("call", "called", "called", "an|rufen", "angerufen", objects="human family"),
    Verb("pick|up", "picked|up", "picked|up", "ab|holen", "abgeholt", objects="human family"),
    Verb("ask", "asked", "asked", "fragen", "gefragt", objects="human"),
    Verb("understand", "understood", "understood", "verstehen", "verstanden", modes="state", objects="explainable"),
    Verb("need", "needed", "needed", "brauchen", "gebraucht", modes="state", objects="goods small"),
    Verb("wash", "washed", "washed", "waschen", "gewaschen", "wäsch", objects="washable"),
    Verb("repair", "repaired", "repaired", "reparieren", "repariert", objects="reparable"),
    Verb("paint", "painted", "painted", "malen", "gemalt", objects="picture"),
    Verb("cook", "cooked", "cooked", "kochen", "gekocht", objects="cooked"),
    Verb("bake", "baked", "baked", "backen", "gebacken", objects="baked"),
    Verb("carry", "carried", "carried", "tragen", "getragen", "träg", objects="portable"),
    Verb("wear", "wore", "worn", "tragen", "getragen", "träg", objects="clothes"),
    Verb("take|off", "took|off", "taken|off", "aus|ziehen", "ausgezogen", objects="clothes"),
    Verb("turn|on", "turned|on", "turned|on", "ein|schalten", "eingeschaltet", objects="switchable"),
    Verb("turn|off", "turned|off", "turned|off", "aus|schalten", "ausgeschaltet", objects="switchable"),
    Verb("throw|away", "threw|away", "thrown|away", "weg|werfen", "weggeworfen", "wirf", objects="rubbish"),
    Verb("tidy|up", "tidied|up", "tidied|up", "auf|räumen", "aufgeräumt", objects="room"),
    Verb("bring|along", "brought|along", "brought|along", "mit|bringen", "mitgebracht", objects="grocery gift"),
    Verb("borrow", "borrowed", "borrowed", "aus|leihen", "ausgeliehen", objects="lendable"),
    Verb("look at", "looked at", "looked at", "betrachten", "betrachtet", objects="visible"),
    Verb("sing", "sang", "sung", "singen", "gesungen", objects="song"),
    Verb("build", "built", "built", "bauen", "gebaut", objects="built"),
    Verb("clean", "cleaned", "cleaned", "putzen", "geputzt", objects="cleanable"),
    Verb("pay for", "paid for", "paid for", "bezahlen", "bezahlt", objects="dish drink ticket"),
)

DITRANSITIVE: tuple[Verb, ...] = (
    Verb("give", "gave", "given", "geben", "gegeben", "gib", objects="givable", recipients="human family"),
    Verb("show", "showed", "shown", "zeigen", "gezeigt", objects="givable sight", recipients="human family"),
    Verb("send", "sent", "sent", "schicken", "geschickt", objects="sendable", recipients="human family"),
    Verb("lend", "lent", "lent", "leihen", "geliehen", objects="lendable", recipients="human family"),
    Verb("bring", "brought", "brought", "bringen", "gebracht", objects="drink dish givable", recipients="human family"),
    Verb("tell", "told", "told", "erzählen", "erzählt", objects="tellable", recipients="human family youth"),
)

DATIVE: tuple[Verb, ...] = (
    Verb("help", "helped", "helped", "helfen", "geholfen", "hilf", recipients="human family"),
    Verb("thank", "thanked", "thanked", "danken", "gedankt", recipients="human family"),
    Verb("congratulate", "congratulated", "congratulated", "gratulieren", "gratuliert", recipients="human family"),
    Verb("answer", "answered", "answered", "antworten", "geantwortet", recipients="human family"),
    Verb("trust", "trusted", "trusted", "vertrauen", "vertraut", modes="state", recipients="human family"),
    Verb("follow", "followed", "followed", "folgen", "gefolgt", aux="sein", recipients="human animal"),
    Verb("listen to", "listened to", "listened to", "zu|hören", "zugehört", recipients="human family"),
)

PREPOSITIONAL: tuple[Verb, ...] = (
    Verb(
        "wait",
        "waited",
        "waited",
        "warten",
        "gewartet",
        objects="human expected",
        english_preposition="for",
        preposition="auf",
    ),
    Verb(
        "think",
        "thought",
        "thought",
        "denken",
        "gedacht",
        objects="human family",
        english_preposition="of",
        preposition="an",
    ),
    Verb(
        "talk",
        "talked",
        "talked",
        "sprechen",
        "gesprochen",
        "sprich",
        objects="topic",
        english_preposition="about",
        preposition="über",
    ),
    Verb(
        "laugh",
        "laughed",
        "laughed",
        "lachen",
        "gelacht",
        objects="topic",
        english_preposition="about",
        preposition="über",
    ),
    Verb(
        "dream",
        "dreamed",
        "dreamed",
        "träumen",
        "geträumt",
        objects="sight human",
        english_preposition="of",
        preposition="von",
        case=2,
    ),
    Verb(
        "play",
        "played",
        "played",
        "spielen",
        "gespielt",
        objects="pet youth",
        english_preposition="with",
        preposition="mit",
        case=2,
    ),
    Verb(
        "take care",
        "took care",
        "taken care",
        "kümmern",
        "gekümmert",
        objects="pet family youth garden",
        english_preposition="of",
        preposition="um",
        reflexive=True,
    ),
    Verb(
        "look forward",
        "looked forward",
        "looked forward",
        "freuen",
        "gefreut",
        objects="pleasure",
        english_preposition="to",
        preposition="auf",
        reflexive=True,
    ),
)

INTRANSITIVE: tuple[Verb, ...] = (
    Verb("sleep", "slept", "slept", "schlafen", "geschlafen", "schläf", subjects="person pet"),
    Verb("work", "worked", "worked", "arbeiten", "gearbeitet"),
    Verb("laugh", "laughed", "laughed", "lachen", "gelacht"),
    Verb("cry", "cried", "cried", "weinen", "geweint"),
    Verb("dance", "danced", "danced", "tanzen", "getanzt"),
    Verb("sing", "sang", "sung", "singen", "gesungen"),
    Verb("cook", "cooked", "cooked", "kochen", "gekocht"),
    Verb("swim", "swam", "swum", "schwimmen", "geschwommen", aux="sein"),
    Verb("get up", "got up", "got up", "auf|stehen", "aufgestanden", aux="sein"),
    Verb(
        "wake up",
        "woke up",
        "woken up",
        "auf|wachen",
        "aufgewacht",
        aux="sein",
        modes="happening",
        subjects="person pet",
    ),
    Verb(
        "fall asleep",
        "fell asleep",
        "fallen asleep",
        "ein|schlafen",
        "eingeschlafen",
        "schläf",
        aux="sein",
        modes="happening",
        subjects="person pet",
    ),
    Verb("come back", "came back", "come back", "zurück|kommen", "zurückgekommen", aux="sein"),
    Verb("go out", "went out", "gone out", "aus|gehen", "ausgegangen", aux="sein"),
    Verb("rest", "rested", "rested", "aus|ruhen", "ausgeruht", reflexive=True),
    Verb("hurry", "hurried", "hurried", "beeilen", "beeilt", reflexive=True),
    Verb(
        "arrive",
        "arrived",
        "arrived",
        "an|kommen",
        "angekommen",
        aux="sein",
        modes="happening",
        subjects="person vehicle",
    ),
    Verb(
        "depart",
        "departed",
        "departed",
        "ab|fahren",
        "abgefahren",
        "fähr",
        aux="sein",
        modes="happening",
        subjects="vehicle",
    ),
)

MOTION: tuple[Verb, ...] = (
    Verb("go", "went", "gone", "gehen", "gegangen", aux="sein"),
    Verb("run", "ran", "run", "laufen", "gelaufen", "läuf", aux="sein"),
    Verb("drive", "drove", "driven", "fahren", "gefahren", "fähr", aux="sein"),
)
TRAVEL = Verb("travel", "travelled", "travelled", "reisen", "gereist", aux="sein")
FLY = Verb("fly", "flew", "flown", "fliegen", "geflogen", aux="sein")
LIVE = Verb("live", "lived", "lived", "wohnen", "gewohnt", modes="state")
STAY = Verb("stay", "stayed", "stayed", "bleiben", "geblieben", aux="sein")
WAIT = Verb("wait", "waited", "waited", "warten", "gewartet")
SIT = Verb("sit", "sat", "sat", "sitzen", "gesessen")

PLACEMENT: tuple[tuple[Verb, Verb], ...] = (
    (
        Verb("lay", "laid", "laid", "legen", "gelegt", objects="flat"),
        Verb("lie", "", "", "liegen", "gelegen", modes="present", subjects="flat"),
    ),
    (
        Verb("place", "placed", "placed", "stellen", "gestellt", objects="standing"),
        Verb("stand", "stood", "stood", "stehen", "gestanden", modes="state", subjects="standing"),
    ),
    (
        Verb("hang", "hung", "hung", "hängen", "gehängt", objects="hanging"),
        Verb("hang", "hung", "hung", "hängen", "gehangen", modes="state", subjects="hanging"),
    ),
)
"""Pairs of a verb of direction (accusative) and its verb of location (dative)."""

BE = Verb("be", "was", "been", "sein", "gewesen", aux="sein", modes="state")
HAVE = Verb("have", "had", "had", "haben", "gehabt", modes="state", objects="small pet")
LIKE = Verb("like", "", "", "mögen", "gemocht", modes="present", objects="topic food pet")
COST = Verb("cost", "", "", "kosten", "gekostet", modes="present")
RAIN = Verb("rain", "rained", "rained", "regnen", "geregnet")
SNOW = Verb("snow", "snowed", "snowed", "schneien", "geschneit")

BEGIN = Verb("begin", "began", "begun", "beginnen", "begonnen")
SAY = Verb("say", "said", "said", "sagen", "gesagt")
BELIEVE = Verb("think", "thought", "thought", "glauben", "geglaubt")
KNOW_THAT = Verb("know", "knew", "known", "wissen", "gewusst")
HOPE = Verb("hope", "hoped", "hoped", "hoffen", "gehofft")
ASK = Verb("ask", "asked", "asked", "fragen", "gefragt")
TRY = Verb("try", "tried", "tried", "versuchen", "versucht")
FORGET = Verb("forget", "forgot", "forgotten", "vergessen", "vergessen", "vergiss")
DECIDE = Verb("decide", "decided", "decided", "beschließen", "beschlossen")
PROMISE = Verb("promise", "promised", "promised", "versprechen", "versprochen", "versprich")

COMPLEMENTS: tuple[tuple[Verb, tuple[tuple[str, str], ...]], ...] = (
    (
        Verb("play", "played", "played", "spielen", "gespielt"),
        (
            ("football", "Fußball"),
            ("tennis", "Tennis"),
            ("chess", "Schach"),
            ("the piano", "Klavier"),
            ("the guitar", "Gitarre"),
        ),
    ),
    (
        Verb("learn", "learned", "learned", "lernen", "gelernt"),
        (("German", "Deutsch"), ("English", "Englisch"), ("Spanish", "Spanisch"), ("Italian", "Italienisch")),
    ),
    (
        Verb("speak", "spoke", "spoken", "sprechen", "gesprochen", "sprich"),
        (("German", "Deutsch"), ("English", "Englisch"), ("Spanish", "Spanisch"), ("Italian", "Italienisch")),
    ),
)
"""Verbs with a complement that takes no article in German."""

TRANSPORT: tuple[Noun, ...] = (
    Noun("bus", "Bus", "m", "Busse"),
    Noun("train", "Zug", "m", "Züge"),
    Noun("car", "Auto", "n", "Autos"),
    Noun("bicycle", "Fahrrad", "n", "Fahrräder"),
)
