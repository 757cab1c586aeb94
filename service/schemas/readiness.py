"""The answer of /readyz."""

from pydantic import AwareDatetime, BaseModel, Field


class RegistryOut(BaseModel):
    """What the registry said when it was asked last."""

    version: str | None = Field(
        description="version of the champion that was fetched last; null for none"
    )
    asked: AwareDatetime = Field(description="when it was asked last")
    answered: bool = Field(
        description="whether it answered with a champion that can be used, or that it has none; "
        "where not, the log says why"
    )


class ReadyOut(BaseModel):
    """Whether the service answers questions, whether it can store, and what answers."""

    status: str = Field(description="status of the service: ok")
    storing: bool = Field(description="whether graphs, devices and measurements can be stored")
    not_storing: str | None = Field(
        description="what keeps them from being stored and how to mend it; null where nothing does"
    )
    version: str = Field(description="version of the predictor in use")
    registry: RegistryOut | None = Field(
        default=None, description="the registry; null without one, and before it was asked"
    )
