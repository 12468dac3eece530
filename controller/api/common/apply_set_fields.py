"""The fields of a request that applies, or compares, as a set."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from controller.service.objects.apply_set import ApplySet


class SetFields(BaseModel):
    """Without `applySet` the documents are applied by themselves, and the other fields must be off."""

    model_config = ConfigDict(extra="forbid")

    applySet: Annotated[str | None, Field(max_length=253, description="the apply set that the objects are put in")] = (
        None
    )
    prune: Annotated[bool, Field(description="delete the members of the set that are not in the documents")] = False
    takeOver: Annotated[bool, Field(description="take over objects that belong to another set")] = False
    allowEmpty: Annotated[bool, Field(description="prune also without any document: all members")] = False

    @property
    def as_set(self) -> ApplySet:
        """The same for the use-cases."""
        return ApplySet(self.applySet or "", prune=self.prune, take_over=self.takeOver, allow_empty=self.allowEmpty)
