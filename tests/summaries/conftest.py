import pytest

from tests.summaries import told


@pytest.fixture
def context_of():
    """A context over the rows of one method."""
    return told.context_of
