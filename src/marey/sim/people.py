"""Who submits, what they call it, and what it trains."""

from __future__ import annotations

from dataclasses import dataclass

from marey.sim.chance import Dice

_GIVEN = (
    "mina jun sora hana yuna taro kenji aiko lena jonas marta pavel olga ivan nina luca sofia "
    "mateo elena diego amara kofi zuri priya arjun meera ravi wei lin ming xiu tariq leila omar "
    "noor emma liam ava noah zoe max ida nils freja anders chloe hugo ines"
).split()
_FAMILY = (
    "kim lee park sato mori abe weber novak rossi silva costa okoye diallo patel rao chen wu "
    "haddad berg dubois"
).split()
_PROJECTS = (
    "foundation speech vision ranking search translation multimodal robotics climate protein "
    "recsys ads safety codegen forecasting driving medical physics audio video"
).split()


@dataclass(frozen=True, slots=True)
class User:
    """Someone with an account, in a project, more or less busy."""

    name: str
    project: str
    # Relative frequency of submission; a few people submit most of the work.
    weight: float


def populate(gpus: int, seed: int) -> tuple[User, ...]:
    """The users of a cluster of this size: about one per 16 GPUs."""
    count = max(12, min(2000, gpus // 16))
    projects = [
        p if i < len(_PROJECTS) else f"{p}-{i // len(_PROJECTS) + 1}"
        for i in range(max(5, min(60, count // 6)))
        for p in [_PROJECTS[i % len(_PROJECTS)]]
    ]
    users: list[User] = []
    for i in range(count):
        dice = Dice(seed, 31, i)
        given = _GIVEN[(i * 7) % len(_GIVEN)]
        round_, family = divmod(i, len(_GIVEN))
        name = f"{given}.{_FAMILY[(i + round_ * 3) % len(_FAMILY)]}"
        if family >= 0 and round_ >= len(_FAMILY):
            name += str(round_ // len(_FAMILY))
        # Zipf-like: the busiest user submits some thirty times as often as the median one.
        weight = 1.0 / (1 + i) ** 0.7
        users.append(User(_distinct(name, users), dice.pick(projects), weight))
    return tuple(users)


def _distinct(name: str, users: list[User]) -> str:
    taken = {user.name for user in users}
    number, candidate = 2, name
    while candidate in taken:
        candidate, number = f"{name}{number}", number + 1
    return candidate


@dataclass(frozen=True, slots=True)
class Recipe:
    """A kind of work: how it loads a GPU when all is well, at one A100."""

    model: str
    dataset: str
    # Shares of the GPU in the middle of training.
    util: float
    sm: float
    tensor: float
    dram: float
    memory: float
    # Seconds per step, units per second and GPU, and what the unit is.
    step_s: float
    rate: float
    unit: str
    loss: tuple[float, float]
    lr: float
    batch: int
    precision: str = "bf16"


SMALL = (
    Recipe(
        "resnet50",
        "imagenet",
        0.93,
        0.72,
        0.17,
        0.52,
        0.38,
        0.35,
        780.0,
        "images/s",
        (6.9, 1.1),
        0.1,
        256,
        "fp16",
    ),
    Recipe(
        "vit-base",
        "imagenet-21k",
        0.95,
        0.76,
        0.29,
        0.48,
        0.55,
        0.45,
        620.0,
        "images/s",
        (7.2, 1.4),
        1e-3,
        384,
    ),
    Recipe(
        "bert-large",
        "wiki-books",
        0.96,
        0.78,
        0.36,
        0.47,
        0.62,
        0.55,
        31_000.0,
        "tokens/s",
        (9.8, 1.5),
        2e-4,
        64,
    ),
    Recipe(
        "t5-large",
        "c4",
        0.95,
        0.74,
        0.33,
        0.50,
        0.66,
        0.80,
        22_000.0,
        "tokens/s",
        (8.1, 1.9),
        3e-4,
        48,
    ),
    Recipe(
        "whisper-small",
        "librispeech",
        0.90,
        0.66,
        0.22,
        0.44,
        0.47,
        0.60,
        95.0,
        "clips/s",
        (5.5, 0.4),
        5e-4,
        64,
        "fp16",
    ),
    Recipe(
        "unet-ddpm",
        "laion-art",
        0.97,
        0.81,
        0.31,
        0.58,
        0.71,
        0.70,
        44.0,
        "images/s",
        (0.9, 0.08),
        1e-4,
        32,
    ),
    Recipe(
        "llama-7b-lora",
        "alpaca",
        0.97,
        0.80,
        0.41,
        0.55,
        0.78,
        1.60,
        3_400.0,
        "tokens/s",
        (2.4, 0.9),
        2e-4,
        16,
    ),
    Recipe(
        "graph-net",
        "ogb-lsc",
        0.84,
        0.58,
        0.11,
        0.61,
        0.49,
        0.25,
        2_100.0,
        "graphs/s",
        (4.2, 0.7),
        1e-3,
        512,
        "tf32",
    ),
)
LARGE = (
    Recipe(
        "llama-13b",
        "web-1t",
        0.98,
        0.82,
        0.47,
        0.52,
        0.84,
        3.2,
        1_750.0,
        "tokens/s",
        (10.8, 1.9),
        3e-4,
        1024,
    ),
    Recipe(
        "llama-70b",
        "web-2t",
        0.98,
        0.84,
        0.52,
        0.54,
        0.91,
        9.5,
        410.0,
        "tokens/s",
        (11.2, 1.7),
        1.5e-4,
        2048,
    ),
    Recipe(
        "gpt-30b",
        "pile",
        0.97,
        0.81,
        0.49,
        0.51,
        0.87,
        6.1,
        820.0,
        "tokens/s",
        (10.9, 1.8),
        2e-4,
        1536,
    ),
    Recipe(
        "moe-8x7b",
        "web-2t",
        0.96,
        0.76,
        0.38,
        0.56,
        0.89,
        4.4,
        1_200.0,
        "tokens/s",
        (10.6, 1.8),
        2e-4,
        1024,
    ),
    Recipe(
        "vit-huge",
        "jft",
        0.96,
        0.79,
        0.43,
        0.50,
        0.74,
        1.4,
        210.0,
        "images/s",
        (8.0, 1.2),
        8e-4,
        4096,
    ),
    Recipe(
        "sdxl",
        "laion-2b",
        0.97,
        0.82,
        0.39,
        0.60,
        0.80,
        1.9,
        17.0,
        "images/s",
        (0.8, 0.06),
        1e-4,
        2048,
    ),
)
SERVING = (
    Recipe(
        "llama-13b-serve",
        "-",
        0.62,
        0.42,
        0.15,
        0.46,
        0.86,
        1.0,
        1_900.0,
        "tokens/s",
        (0.0, 0.0),
        0.0,
        32,
    ),
    Recipe(
        "whisper-serve",
        "-",
        0.55,
        0.35,
        0.12,
        0.34,
        0.52,
        1.0,
        60.0,
        "clips/s",
        (0.0, 0.0),
        0.0,
        16,
    ),
)
NOTEBOOK = Recipe("notebook", "-", 0.72, 0.40, 0.12, 0.30, 0.35, 1.0, 0.0, "", (0.0, 0.0), 0.0, 8)
