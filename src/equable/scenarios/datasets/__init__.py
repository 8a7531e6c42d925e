"""Image datasets by name or path: the paper's five, the embedded digits, and one's own images."""

from equable.scenarios.datasets.base import NOT_GIVEN, TEST, TRAIN, VALIDATION, ImageDataset
from equable.scenarios.datasets.catalogue import DATASETS, Source
from equable.scenarios.datasets.checking import DatasetReport, DatasetRow, check, paper_table
from equable.scenarios.datasets.download import RemoteFile
from equable.scenarios.datasets.loading import digest_of, fetch, load_dataset, resolve

__all__ = [
    "DATASETS",
    "DatasetReport",
    "DatasetRow",
    "ImageDataset",
    "NOT_GIVEN",
    "RemoteFile",
    "Source",
    "TEST",
    "TRAIN",
    "VALIDATION",
    "check",
    "digest_of",
    "fetch",
    "load_dataset",
    "paper_table",
    "resolve",
]
