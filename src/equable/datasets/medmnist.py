"""BloodMNIST and DermaMNIST from the official npz files (Yang et al. 2023), with their official splits."""

from functools import partial

from equable.datasets.npz import load_npz

BLOOD_CLASSES = (
    "basophil", "eosinophil", "erythroblast", "immature granulocyte",
    "lymphocyte", "monocyte", "neutrophil", "platelet",
)  # fmt: skip
DERMA_CLASSES = ("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")

load_bloodmnist = partial(load_npz, class_names=BLOOD_CLASSES)
load_dermamnist = partial(load_npz, class_names=DERMA_CLASSES)
