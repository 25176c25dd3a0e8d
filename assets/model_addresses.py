"""Where the models of an audit come from."""

from plumbline.checkpoints.addresses import STORED
from plumbline.config.audit import Audit
from plumbline.config.entries import LvlmEntry


def lvlm_address(entry: LvlmEntry) -> str:
    """Return the address of a generative model: of an endpoint the name of its model, of stored answers who gave them.

    Where nobody says who gave them, they are named by their files.
    """
    if entry.answers is not None:
        return entry.answers.checkpoint or f"{STORED}{', '.join(entry.answers.files)}"
    return entry.address or (entry.endpoint.model if entry.endpoint else "")


def model_addresses(audit: Audit) -> dict[str, str]:
    """Return every encoder and generative model of the audit file -> its address."""
    of_encoders = {name: entry.study_address for name, entry in audit.encoders.items()}
    return of_encoders | {name: lvlm_address(entry) for name, entry in audit.lvlms.items()}
