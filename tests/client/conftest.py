from tests.helpers_fixtures import api as api
from tests.helpers_fixtures import quiet as quiet
from tests.helpers_fixtures import running_api as running_api
from tests.helpers_fixtures import served as served
