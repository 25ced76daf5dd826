"""What clients ask for in a format, and a tool that they offer."""

from typing import Literal

from pydantic import BaseModel, Field


class Tale(BaseModel):
    """Tells a tale."""

    hero: Literal["cat", "dog"]
    age: int = Field(ge=1, le=99)
    happy: bool


RESULT = "Once there was a dog."  # of the tool
