"""What each field means, in words for `paddock explain` and for editors: `Model.field`, or `field` wherever it stands.

The form that a value must have comes from the model; these words say what it does.
"""

from collections.abc import Mapping

WORDS: Mapping[str, str] = {
    "name": "The name.",
    "Metadata.name": "The name, unique for its kind in its namespace; it cannot be changed.",
    "Metadata.namespace": "The project or tenant it belongs to; `default` if left out.",
    "Metadata.labels": "Short words to select by: `paddock get sandboxes -l app=web`.",
    "Metadata.annotations": "Notes that nothing selects by.",
    "Metadata.resourceVersion": "If given, the change is refused unless the object is still at this version.",
    "Metadata.uid": "If given, the change is refused unless it is still the same object.",
    "Metadata.generation": "Counts the changes of the spec; only Paddock sets it.",
    "Metadata.creationTimestamp": "When it was made; only Paddock sets it.",
    "Metadata.deletionTimestamp": "When its deletion was asked for; only Paddock sets it.",
    "Metadata.finalizers": "What has to be cleaned up before it goes; only Paddock sets it.",
    "Metadata.ownerReferences": "The objects it goes with; only Paddock sets it.",
    "SandboxSpec.template": "What to run, written out here. One of `template` and `templateRef` is needed.",
    "SandboxSpec.templateRef": "What to run, by the name of a SandboxTemplate of the same namespace.",
    "TemplateRef.name": "The SandboxTemplate's name.",
    "SandboxSpec.runState": "Running; Suspended: stopped, and started when this is Running again; Paused: frozen, "
    "memory kept.",
    "SandboxSpec.restartPolicy": "Whether it is started again when it ends by itself: Always; OnFailure: not after "
    "exit code 0; Never.",
    "SandboxSpec.lifecycle": "How long things may take.",
    "Lifecycle.shutdownGracePeriodSeconds": "Seconds from SIGTERM to SIGKILL when it is stopped.",
    "Lifecycle.activeDeadlineSeconds": "Seconds after its first start at which it is stopped for good, until its spec "
    "changes; none if left out.",
    "Lifecycle.ttlSecondsAfterFinished": "Seconds after which a finished sandbox is deleted; never if left out.",
    "Lifecycle.idleTimeoutSeconds": "Seconds without use (exec, followed log, processor time) after which `onIdle` "
    "happens.",
    "Lifecycle.keepRunning": "Never idle: for services that run unattended.",
    "Lifecycle.onIdle": "Suspend: stopped, and started again by the next exec; Delete: the sandbox is deleted.",
    "resources": "What it may use.",
    "Resources.limits": "Upper bounds, changed in place; what is left out is filled in by the template, then by the "
    "security level.",
    "Resources.cpuShares": "Weight against other sandboxes when the host's processors are all busy; 1024 is ordinary.",
    "ResourceLimits.cpu": "Processor time.",
    "ResourceLimits.memory": "Memory, with what is written to tmpfs.",
    "ResourceLimits.pids": "Processes and threads.",
    "image": "The image. It is pinned to its digest at each change of the spec: a tag that moves recreates nothing.",
    "command": "The command and its arguments; the image's own if left out.",
    "user": "Who it runs as, in numbers; an id that no host user has if left out.",
    "workingDir": "The folder it starts in; the image's own if left out.",
    "env": "Variables of its environment. Anyone who may look at the container can read them: no secrets here.",
    "EnvVar.name": "The variable's name.",
    "EnvVar.value": "Its value.",
    "tmpfs": "Folders in memory, writable by its user, gone with the container; they count as memory.",
    "TmpfsMount.mountPath": "Where it appears in the sandbox.",
    "TmpfsMount.size": "How much it holds.",
    "securityLevel": "What it is kept from; the strictest level is the default.",
}
