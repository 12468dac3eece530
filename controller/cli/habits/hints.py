"""Advice for those who type what Docker, Compose or kubectl would take: the one line to write here, or nothing."""

import difflib
import re
import shlex
from collections.abc import Collection, Mapping, Sequence

_CLOSE = 0.74  # of the letters of both words in common: a slip of the keyboard
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._/:@-]*")

_LIST = "write `paddock get sandboxes`"
_IMAGES = "write `paddock image list`"
_BUILD = "write `paddock image build ARGUMENTS`"
_DOCKER_IMAGES = "images are the engine's; write `docker COMMAND` on the host"
_START = "write `paddock set run-state sandbox/NAME Running`"
_STOP = "write `paddock set run-state sandbox/NAME Suspended`"
_PAUSE = "write `paddock set run-state sandbox/NAME Paused`"
_KILL = "write `paddock delete sandbox NAME --now`; `paddock exec NAME -- kill PID` sends a signal"
_REMOVE = "write `paddock delete sandbox NAME`"
_SNAPSHOT = "write `paddock snapshot create SNAPSHOT --from sandbox/NAME`"
_EXPORT = "write `paddock snapshot create SNAPSHOT --from sandbox/NAME`, then `paddock snapshot export SNAPSHOT FILE`"
_PRUNE = "what ended goes by itself (`ttlSecondsAfterFinished`), and images by `docker image prune` on the host"
_VOLUMES = "write `paddock get volumes`"
_NO_NETWORKS = (
    "a sandbox joins no network of Docker's: its security level and `network: {allowedHosts: [...]}` decide; "
    "see `paddock get securityprofiles`"
)
_SWARM = "a fleet is several daemons of one store; write `paddock host list`"
_PORT = "ports are not published; write `paddock port-forward NAME PORT`"
_ATTACH = "write `paddock logs -f NAME`, or `paddock exec -it NAME -- sh`"
_NEW_IMAGE = "write `paddock run -d IMAGE`"
_HISTORY = "no earlier generations are kept; apply the file of the older one"
_NO_REGISTRY = "log the host's engine in: `docker login` on the host"
_NAMESPACES = "namespaces are not created: write any name with -n, as in `paddock get sandboxes -n team`"

# Words of a command line that Paddock has not -> what to write. NAME and IMAGE are replaced by what was typed.
ELSEWHERE = {
    "api-versions": "write `paddock api-resources`",
    "attach": _ATTACH,
    "autoscale": "a SandboxPool grows to `maxReplicas` by itself; write `paddock scale sandboxpool NAME --replicas=N`",
    "build": _BUILD,
    "builder": "write `paddock image build -t TAG FOLDER`",
    "buildx build": _BUILD,
    "buildx": "write `paddock image build -t TAG FOLDER`",
    "certificate": "clients have tokens; see `paddock token create --help`",
    "checkpoint": "write `paddock snapshot create SNAPSHOT --from sandbox/SANDBOX`",
    "cluster-info": "write `paddock get host`, or `paddock doctor`",
    "commit": _SNAPSHOT.replace("NAME", "FIRST"),
    "container attach": _ATTACH,
    "container create": _NEW_IMAGE,
    "container exec": "write `paddock exec NAME -- PROGRAM`",
    "container inspect": "write `paddock inspect NAME`",
    "container kill": _KILL,
    "container logs": "write `paddock logs NAME`",
    "container pause": _PAUSE,
    "container prune": _PRUNE,
    "container restart": "write `paddock restart NAME`",
    "container rm": _REMOVE,
    "container run": "write `paddock run IMAGE`",
    "container start": _START,
    "container stats": "write `paddock top [NAME]`",
    "container stop": _STOP,
    "container unpause": _START,
    "container": _LIST,
    "context use": "write `paddock config use-context NAME`",
    "context": "write `paddock config get-contexts`",
    "cordon": "write `paddock host cordon NAME`",
    "ctx": "write `paddock config get-contexts`, or `paddock config use-context NAME`",
    "debug": "write `paddock exec -it NAME -- sh`",
    "drain": "write `paddock host drain NAME`",
    "export": _EXPORT,
    "expose": _PORT,
    "hibernate": "write `paddock set run-state sandbox/NAME Hibernated`",
    "history": _DOCKER_IMAGES,
    "images": _IMAGES,
    "info": "write `paddock doctor`, or `paddock get host`",
    "kill": _KILL,
    "kustomize": "write `kubectl kustomize FOLDER | paddock apply -f -`",
    "load": _DOCKER_IMAGES,
    "login": _NO_REGISTRY,
    "logout": _NO_REGISTRY,
    "ls": _LIST,
    "manifest": _DOCKER_IMAGES,
    "model": "write `paddock models`",
    "namespace": _NAMESPACES,
    "node": "write `paddock host list`",
    "nodes": "write `paddock host list`",
    "ns": _NAMESPACES,
    "pause": _PAUSE,
    "port": _PORT,
    "proxy": "write `paddock port-forward NAME PORT`",
    "ps": _LIST,
    "pull": "write `paddock image pull IMAGE`",
    "push": "write `paddock image push IMAGE`",
    "rename": "a sandbox keeps its name; write `paddock fork OLD --name-prefix NEW`, and delete the old one",
    "resume": _START,
    "rm": _REMOVE,
    "rmi": "write `paddock image delete IMAGE`",
    "save": _DOCKER_IMAGES,
    "scout": "write `make audit` in Paddock's folder",
    "search": _DOCKER_IMAGES,
    "service": _SWARM,
    "stack": "write `paddock compose up`",
    "start": _START,
    "stats": "write `paddock top [NAME]`",
    "stop": _STOP,
    "suspend": _STOP,
    "swarm": _SWARM,
    "system df": "write `paddock image list`, `paddock get volumes`, and `paddock get host` for the disk",
    "system events": "write `paddock events -A -w`",
    "system info": "write `paddock doctor`, or `paddock get host`",
    "system prune": _PRUNE,
    "system": "write `paddock doctor`, or `paddock get host`",
    "tag": _DOCKER_IMAGES,
    "taint": "write `paddock host cordon NAME`",
    "uncordon": "write `paddock host uncordon NAME`",
    "unpause": _START,
    "update": "write `paddock set resources sandbox/NAME --limits=cpu=1,memory=1Gi`",
    "volume create": "a volume is created with the sandbox that names it; write `paddock run -v NAME:/PATH`",
    "volume inspect": "write `paddock describe volume NAME`",
    "volume prune": "write `paddock get volumes`, then `paddock delete volume NAME`",
    "volume rm": "write `paddock delete volume NAME`",
    "volume": _VOLUMES,
}

_COMPOSE_ATTACH = "write `paddock compose logs -f SERVICE`, or `paddock compose exec SERVICE sh`"
_COMPOSE_CHOICE = "write `paddock get sandboxes -l paddock/compose-project=PROJECT`"
_COMPOSE_SCALE = "a service is one sandbox; several copies are a SandboxPool"
_RECREATE = "a service is recreated if it changed; for all write `paddock compose down`, then `paddock compose up`"

# Group -> sub-command that it has not -> what to write.
SUBCOMMANDS: Mapping[str, Mapping[str, str]] = {
    "compose": {
        "attach": _COMPOSE_ATTACH,
        "convert": "write `paddock compose config`",
        "cp": "write `paddock cp FILE SANDBOX:PATH`; `paddock compose ps` lists the sandboxes",
        "create": "write `paddock compose up -d`, then `paddock compose stop`",
        "events": "write `paddock events -w`",
        "export": "write `paddock compose ps`, then `paddock snapshot create SNAPSHOT --from sandbox/SANDBOX`",
        "images": "write `paddock compose config --images`",
        "kill": "write `paddock compose stop`, or `paddock compose down`",
        "ls": "write `paddock get sandboxes --show-labels`; the label paddock/compose-project is the project",
        "pause": "write `paddock compose ps`, then `paddock set run-state sandbox/SANDBOX Paused`",
        "port": "write `paddock compose ps`, which lists the open ports",
        "publish": "a file stays where it is; give it to others as it is",
        "pull": "write `paddock compose config --images`, then `paddock image pull IMAGE`",
        "push": "write `paddock image push IMAGE`",
        "rm": "write `paddock compose down`, or `paddock delete sandbox SANDBOX`",
        "run": "write `paddock compose exec SERVICE PROGRAM`, or `paddock run IMAGE PROGRAM`",
        "scale": _COMPOSE_SCALE,
        "stats": "write `paddock top`",
        "top": "write `paddock top`",
        "unpause": "write `paddock compose ps`, then `paddock set run-state sandbox/SANDBOX Running`",
        "version": "write `paddock version`",
        "wait": "write `paddock compose ps`, then `paddock wait --for=condition=Finished sandbox/SANDBOX`",
        "watch": "files are not synchronised; write `paddock cp`, or bind the folder (`volumes:`)",
    },
    "image": {"rmi": "write `paddock image delete IMAGE`"},
}
# Of `compose`, `up` and `down`.
COMPOSE: Mapping[str, str] = {
    **dict.fromkeys(
        ("--abort-on-container-exit", "--abort-on-container-failure", "--exit-code-from"),
        "write `paddock compose up -d`, then `paddock wait --for=condition=Finished sandbox/SANDBOX`",
    ),
    **dict.fromkeys(("--attach", "--no-attach", "--attach-dependencies", "--menu"), _COMPOSE_ATTACH),
    **dict.fromkeys(("--force-recreate", "--always-recreate-deps", "--renew-anon-volumes"), _RECREATE),
    **dict.fromkeys(("--filter", "--status"), _COMPOSE_CHOICE),
    **dict.fromkeys(("-u", "--user", "--privileged", "--index"), "set `user:` in the file, and leave this out"),
    "--dry-run": "write `paddock compose config`, or `paddock diff --compose FILE`",
    "--no-deps": "a service comes with those that it needs; leave it out",
    "--no-start": "write `paddock compose config`, which starts nothing",
    "--parallel": "leave it out",
    "--project-directory": "paths begin at the file; write `paddock compose -f FOLDER/compose.yaml up`",
    "--pull": "write `paddock image pull IMAGE` first",
    "--rmi": "write `paddock image delete IMAGE`",
    "--scale": _COMPOSE_SCALE,
    "--watch": "files are not synchronised; write `paddock cp`, or bind the folder (`volumes:`)",
}

# Command -> option or word that it does not take -> what to write. Used only once a command line is refused.
_ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "apply": {
        "-k": "write `kubectl kustomize FOLDER | paddock apply -f -`",
        "--kustomize": "write `kubectl kustomize FOLDER | paddock apply -f -`",
        "--server-side": "every apply merges at the daemon; leave it out",
        "--force-conflicts": "fields have no managers; leave it out",
    },
    "compose": COMPOSE,
    "config": {"ls": "write `paddock config get-contexts`"},
    "create": {
        **dict.fromkeys(("deployment", "deploy"), "write a SandboxPool into a file, or `paddock run -d IMAGE`"),
        **dict.fromkeys(("job", "cronjob"), "write `paddock run IMAGE PROGRAM`"),
        **dict.fromkeys(("namespace", "ns"), _NAMESPACES),
        "configmap": "write `env` into the template, or copy files with `paddock cp`",
        "quota": "write a Quota into a file, and `paddock apply -f FILE`",
        "secret": "write `sudo paddock secret set NAME --for sandboxes` on the host",
        "service": _PORT,
        "serviceaccount": "write `paddock token create NAME`",
        "token": "write `paddock token create NAME`",
        "": "a sandbox of an image is `paddock create sandbox NAME --image IMAGE`",
    },
    "down": {
        **COMPOSE,
        "": "it is about the whole project; write `paddock compose stop SERVICE`, or `paddock delete sandbox NAME`",
    },
    "diff": {"": "it compares files with what is stored: `paddock diff -f FILE`"},
    "events": {"--since": "all kept events are shown, the newest last; leave it out"},
    "get": {
        "-f": "write KIND/NAME of each object",
        "--filename": "write KIND/NAME of each object",
        "--raw": "write `curl` with the daemon's socket or address",
        "--chunk-size": "lists are read in parts by themselves; leave it out",
    },
    "image": {
        "history": "write `docker history IMAGE` on the host",
        "inspect": "write `docker image inspect IMAGE` on the host",
        "load": "write `docker load` on the host",
        "prune": "write `docker image prune` on the host",
        "save": "write `docker save IMAGE` on the host",
        "tag": "write `docker tag` on the host",
    },
    "import": {
        "": "write `paddock import agent-sandbox -f FILE`; an archive of an image is `docker import` on the host"
    },
    "inspect": {
        "-f": "write `paddock get sandbox NAME -o jsonpath={.status.phase}`",
        "--format": "write `paddock get sandbox NAME -o jsonpath={.status.phase}`",
    },
    "network": {
        **dict.fromkeys(
            ("ls", "list", "create", "rm", "connect", "disconnect", "inspect", "prune", "remove"), _NO_NETWORKS
        )
    },
    "patch": {"strategic": "lists of a merge patch are replaced whole; write `--type=merge`"},
    "rollout": dict.fromkeys(("undo", "history"), _HISTORY) | {"pause": _PAUSE, "resume": _START},
    "secret": {
        "create": "write `sudo paddock secret set NAME --for sandboxes`",
        "inspect": "values are never shown; write `paddock secret list`",
    },
    "set": {
        "--list": "write `paddock get sandbox NAME -o jsonpath={.spec.template.env}`",
        "--requests": "limits are what is reserved; write `--limits=cpu=1,memory=1Gi`",
    },
    "snapshot": {"": "write `paddock snapshot create SNAPSHOT --from sandbox/SANDBOX`"},
    "up": COMPOSE,
    "wait": {"": "write `paddock wait --for=condition=Ready sandbox/NAME`, or `--for=condition=Finished` for its end"},
}
_SHORT = {"ls": ("list",), "rm": ("remove", "delete")}


def command_advice(words: Sequence[str], commands: Collection[str]) -> str:
    """Return what somebody may have meant whose first word is not one of these commands. Never "" ."""
    word = words[0]
    pair = " ".join(words[:2])
    if advice := ELSEWHERE.get(pair) or ELSEWHERE.get(word):
        return _with_arguments(advice, words[2 if pair in ELSEWHERE else 1 :], word)
    close = difflib.get_close_matches(word, [*commands, *ELSEWHERE], n=1, cutoff=_CLOSE)
    if not close:
        return "`paddock --help` lists all commands"
    if close[0] in commands:
        return f"did you mean `{close[0]}`?"
    return _with_arguments(ELSEWHERE[close[0]], words[1:], close[0])


def subcommand_advice(command_line: Sequence[str], word: str) -> str:
    """Return what to write in place of a sub-command that a group has not; "" if nothing fits."""
    group = command_line[0] if command_line else ""
    advice = SUBCOMMANDS.get(group, {}).get(word, "")
    # Words after Compose's are services: they are neither images nor names of sandboxes.
    return advice if group == "compose" else _with_arguments(advice, command_line[command_line.index(word) + 1 :])


def is_slip(word: str, command: str) -> bool:
    """Return True if a word is a slip of the keyboard for a command, not another habit."""
    return difflib.SequenceMatcher(None, command, word).ratio() >= _CLOSE


def argument_advice(command_line: Sequence[str]) -> str:
    """Return what to write in place of a refused command line; "" if nothing fits."""
    command_line = command_line[1:] if command_line[:1] == ["sandbox"] else command_line
    known_words = _ARGUMENTS.get(command_line[0], {}) if command_line else {}
    arguments = list(command_line[1 : command_line.index("--")] if "--" in command_line else command_line[1:])
    split_words = [word for argument in arguments for word in argument.split("=", 1)[:2] if word]
    advice = next((known_words[word] for word in split_words if word in known_words), known_words.get("", ""))
    if command_line[0] == "compose":
        return advice
    return _with_arguments(advice, [argument for argument in arguments if known_words.get(argument) != advice])


def full_name(word: str, commands: Collection[str]) -> str:
    """Return the command that Docker's short word (`ls`, `rm`) means in a group; the word itself if there is none."""
    return next((name for name in _SHORT.get(word, ()) if name in commands), word) if word not in commands else word


def _with_arguments(advice: str, arguments: Sequence[str], command: str = "") -> str:
    """Put what was typed in place of NAME (the last one), FIRST, IMAGE, COMMAND and ARGUMENTS.

    ` [NAME]` goes where no name was.
    """
    positionals = [argument for argument in arguments if not argument.startswith("-") and not argument.isdigit()]
    name = next((_name(argument) for argument in reversed(positionals) if _name(argument)), "")
    image = next((argument for argument in reversed(positionals) if _IMAGE.fullmatch(argument)), "IMAGE")
    image = next((argument[8:] for argument in arguments if argument.startswith("--image=")), image)
    text = advice.replace(" [NAME]", f" {name}" if name else "").replace("IMAGE", image)
    text = text.replace("FIRST", next(filter(None, map(_name, positionals)), "NAME"))
    text = text.replace("COMMAND", shlex.join((command, *arguments)))
    text = text.replace("ARGUMENTS", shlex.join(arguments) or "-t TAG FOLDER")
    return re.sub(r"\bNAME\b", name, text) if name else text


def _name(word: str) -> str:
    """Return the name of an object in `NAME` or `KIND/NAME`; "" if it can be none."""
    kind, _, name = word.rpartition("/")
    return name if _NAME.fullmatch(name) and (not kind or kind.isalpha()) else ""
