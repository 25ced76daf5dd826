"""pydantic-ai: agents whose output is of a type, by a format or by a tool."""

from plan import check, equal, plan
from pydantic_ai import Agent, ModelSettings, NativeOutput, ToolOutput
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from tale import RESULT, Tale

provider = OpenAIProvider(base_url=plan["base"], api_key=plan["key"])
settings = {"temperature": 0}


class Once(AbstractCapability):
    """Has a tool called first, and none after that."""

    def get_model_settings(self):
        return lambda ctx: ModelSettings(temperature=0, max_tokens=1000 if ctx.run_step < 2 else 20, tool_choice="required" if ctx.run_step < 2 else "none")


def outputs(model):
    """Asks for a tale in both ways."""
    for output in NativeOutput(Tale), ToolOutput(Tale):
        equal(type(Agent(model, output_type=output, model_settings=settings, retries=0).run_sync(plan["prompt"]).output), Tale, "the output")


@check("chat")
def _():
    outputs(OpenAIChatModel(plan["model"], provider=provider))


@check("responses")
def _():
    outputs(OpenAIResponsesModel(plan["model"], provider=provider))


@check("tools")
def _():
    calls = []

    def tell(tale: Tale) -> str:
        """Tells a tale."""
        calls.append(tale)
        return RESULT

    agent = Agent(OpenAIChatModel(plan["model"], provider=provider), tools=[tell], capabilities=[Once()])
    result = agent.run_sync(plan["prompt"])
    if not calls or not all(isinstance(c, Tale) for c in calls) or not result.output:
        raise AssertionError(f"calls {calls}, answer {result.output!r}")
