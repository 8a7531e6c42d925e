"""Datasets by name or path: the paper's five, the embedded digits, the user's images and vectors."""

from equable.datasets.base import Dataset, ImageDataset, VectorDataset
from equable.datasets.download import RemoteFile
from equable.datasets.inspect import DatasetReport, check, paper_table
from equable.datasets.load import digest_of, fetch, load_dataset, resolve
from equable.datasets.registry import DATASETS, Source
from equable.scenarios.tasks import NOT_GIVEN, TEST, TRAIN, VALIDATION

__all__ = [
    "DATASETS",
    "Dataset",
    "DatasetReport",
    "ImageDataset",
    "NOT_GIVEN",
    "RemoteFile",
    "Source",
    "TEST",
    "TRAIN",
    "VALIDATION",
    "VectorDataset",
    "check",
    "digest_of",
    "fetch",
    "load_dataset",
    "paper_table",
    "resolve",
]
