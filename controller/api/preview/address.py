"""The public address of previews."""

from dataclasses import dataclass
from urllib.parse import urlencode

from controller.kinds.runtime.preview import PARAMETER, label_of
from controller.service.front.previews import PreviewLink


@dataclass(frozen=True, slots=True)
class PreviewAddress:
    """The public address of previews: `https`, a domain, and a port in it unless that is the scheme's."""

    scheme: str
    domain: str

    def url(self, link: PreviewLink) -> str:
        """Return the link."""
        label = label_of(link.target, link.uid)
        return f"{self.scheme}://{label}.{self.domain}/?{urlencode({PARAMETER: link.token})}"
