"""Who submits, what they call it, and what it trains."""

from __future__ import annotations

from dataclasses import dataclass

from marey.sim.random_draws import RandomDraws

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
    """Return the users of a cluster of this size: about one per 16 GPUs."""
    count = max(12, min(2000, gpus // 16))
    projects = [
        p if i < len(_PROJECTS) else f"{p}-{i // len(_PROJECTS) + 1}"
        for i in range(max(5, min(60, count // 6)))
        for p in [_PROJECTS[i % len(_PROJECTS)]]
    ]
    users: list[User] = []
    for i in range(count):
        dice = RandomDraws(seed, 31, i)
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
        model="resnet50",
        dataset="imagenet",
        util=0.93,
        sm=0.72,
        tensor=0.17,
        dram=0.52,
        memory=0.38,
        step_s=0.35,
        rate=780.0,
        unit="images/s",
        loss=(6.9, 1.1),
        lr=0.1,
        batch=256,
        precision="fp16",
    ),
    Recipe(
        model="vit-base",
        dataset="imagenet-21k",
        util=0.95,
        sm=0.76,
        tensor=0.29,
        dram=0.48,
        memory=0.55,
        step_s=0.45,
        rate=620.0,
        unit="images/s",
        loss=(7.2, 1.4),
        lr=1e-3,
        batch=384,
    ),
    Recipe(
        model="bert-large",
        dataset="wiki-books",
        util=0.96,
        sm=0.78,
        tensor=0.36,
        dram=0.47,
        memory=0.62,
        step_s=0.55,
        rate=31_000.0,
        unit="tokens/s",
        loss=(9.8, 1.5),
        lr=2e-4,
        batch=64,
    ),
    Recipe(
        model="t5-large",
        dataset="c4",
        util=0.95,
        sm=0.74,
        tensor=0.33,
        dram=0.50,
        memory=0.66,
        step_s=0.80,
        rate=22_000.0,
        unit="tokens/s",
        loss=(8.1, 1.9),
        lr=3e-4,
        batch=48,
    ),
    Recipe(
        model="whisper-small",
        dataset="librispeech",
        util=0.90,
        sm=0.66,
        tensor=0.22,
        dram=0.44,
        memory=0.47,
        step_s=0.60,
        rate=95.0,
        unit="clips/s",
        loss=(5.5, 0.4),
        lr=5e-4,
        batch=64,
        precision="fp16",
    ),
    Recipe(
        model="unet-ddpm",
        dataset="laion-art",
        util=0.97,
        sm=0.81,
        tensor=0.31,
        dram=0.58,
        memory=0.71,
        step_s=0.70,
        rate=44.0,
        unit="images/s",
        loss=(0.9, 0.08),
        lr=1e-4,
        batch=32,
    ),
    Recipe(
        model="llama-7b-lora",
        dataset="alpaca",
        util=0.97,
        sm=0.80,
        tensor=0.41,
        dram=0.55,
        memory=0.78,
        step_s=1.60,
        rate=3_400.0,
        unit="tokens/s",
        loss=(2.4, 0.9),
        lr=2e-4,
        batch=16,
    ),
    Recipe(
        model="graph-net",
        dataset="ogb-lsc",
        util=0.84,
        sm=0.58,
        tensor=0.11,
        dram=0.61,
        memory=0.49,
        step_s=0.25,
        rate=2_100.0,
        unit="graphs/s",
        loss=(4.2, 0.7),
        lr=1e-3,
        batch=512,
        precision="tf32",
    ),
)
LARGE = (
    Recipe(
        model="llama-13b",
        dataset="web-1t",
        util=0.98,
        sm=0.82,
        tensor=0.47,
        dram=0.52,
        memory=0.84,
        step_s=3.2,
        rate=1_750.0,
        unit="tokens/s",
        loss=(10.8, 1.9),
        lr=3e-4,
        batch=1024,
    ),
    Recipe(
        model="llama-70b",
        dataset="web-2t",
        util=0.98,
        sm=0.84,
        tensor=0.52,
        dram=0.54,
        memory=0.91,
        step_s=9.5,
        rate=410.0,
        unit="tokens/s",
        loss=(11.2, 1.7),
        lr=1.5e-4,
        batch=2048,
    ),
    Recipe(
        model="gpt-30b",
        dataset="pile",
        util=0.97,
        sm=0.81,
        tensor=0.49,
        dram=0.51,
        memory=0.87,
        step_s=6.1,
        rate=820.0,
        unit="tokens/s",
        loss=(10.9, 1.8),
        lr=2e-4,
        batch=1536,
    ),
    Recipe(
        model="moe-8x7b",
        dataset="web-2t",
        util=0.96,
        sm=0.76,
        tensor=0.38,
        dram=0.56,
        memory=0.89,
        step_s=4.4,
        rate=1_200.0,
        unit="tokens/s",
        loss=(10.6, 1.8),
        lr=2e-4,
        batch=1024,
    ),
    Recipe(
        model="vit-huge",
        dataset="jft",
        util=0.96,
        sm=0.79,
        tensor=0.43,
        dram=0.50,
        memory=0.74,
        step_s=1.4,
        rate=210.0,
        unit="images/s",
        loss=(8.0, 1.2),
        lr=8e-4,
        batch=4096,
    ),
    Recipe(
        model="sdxl",
        dataset="laion-2b",
        util=0.97,
        sm=0.82,
        tensor=0.39,
        dram=0.60,
        memory=0.80,
        step_s=1.9,
        rate=17.0,
        unit="images/s",
        loss=(0.8, 0.06),
        lr=1e-4,
        batch=2048,
    ),
)
SERVING = (
    Recipe(
        model="llama-13b-serve",
        dataset="-",
        util=0.62,
        sm=0.42,
        tensor=0.15,
        dram=0.46,
        memory=0.86,
        step_s=1.0,
        rate=1_900.0,
        unit="tokens/s",
        loss=(0.0, 0.0),
        lr=0.0,
        batch=32,
    ),
    Recipe(
        model="whisper-serve",
        dataset="-",
        util=0.55,
        sm=0.35,
        tensor=0.12,
        dram=0.34,
        memory=0.52,
        step_s=1.0,
        rate=60.0,
        unit="clips/s",
        loss=(0.0, 0.0),
        lr=0.0,
        batch=16,
    ),
)
NOTEBOOK = Recipe(
    model="notebook",
    dataset="-",
    util=0.72,
    sm=0.40,
    tensor=0.12,
    dram=0.30,
    memory=0.35,
    step_s=1.0,
    rate=0.0,
    unit="",
    loss=(0.0, 0.0),
    lr=0.0,
    batch=8,
)
