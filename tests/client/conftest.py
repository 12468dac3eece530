from tests.helpers_fixtures import quiet as quiet
from tests.helpers_fixtures import running_world as running_world
from tests.helpers_fixtures import served as served
from tests.helpers_fixtures import world as world
