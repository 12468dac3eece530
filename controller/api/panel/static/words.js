// Words about a sandbox: its STATUS, as the daemon computes it for tables; and what becomes of its files.

/** The STATUS word of a sandbox. */
export function statusWord(object) {
  if (object.metadata.deletionTimestamp) return 'Terminating';
  const conditions = Object.fromEntries((object.status?.conditions ?? []).map((each) => [each.type, each]));
  for (const [type, status] of [['Accepted', 'False'], ['Finished', 'True'], ['Suspended', 'True'], ['Degraded', 'True']]) {
    if (conditions[type]?.status === status) return conditions[type].reason;
  }
  if (!conditions.Ready) return 'Pending';
  return conditions.Ready.status === 'True' ? 'Running' : conditions.Ready.reason;
}

const filesKept = (object) => object?.status?.conditions?.find((each) => each.type === 'FilesKept');

/** What a suspension does to a sandbox's files: {lost, text}. One without folders in memory has no such condition. */
export function keptBySuspension(object) {
  const condition = filesKept(object);
  if (!condition) return { lost: false, text: 'Stops its processes; its files stay.' };
  if (condition.status === 'True') return { lost: false, text: 'Stops its processes; its files stay, also those in memory.' };
  return { lost: condition.reason !== 'TooLarge', text: `Stops its processes. ${condition.message ?? ''}` };
}

const listed = (texts) => texts.filter(Boolean).join(', ');
const volumeText = ({ name, mountPath }) => `volume ${name}${mountPath ? ` (${mountPath})` : ''}`;

/** Where a sandbox's files outlive its container: {stay, go}, each a list as text. `deleted`: the sandbox goes, too. */
export function filesOf(object, deleted) {
  const { template = {}, workspace, templateRef } = object.spec;
  const claims = (template.volumeClaimTemplates ?? []).map((each) => ({ ...each, claimed: true }));
  const volumes = [...(template.volumes ?? []), ...(workspace?.volume ? [{ ...workspace.volume, mountPath: template.workspace?.mountPath ?? '/workspace' }] : []), ...claims];
  const goes = (volume) => deleted && volume.reclaimPolicy === 'Delete';
  const folders = [workspace?.hostPath, ...(object.spec.hostFolders ?? []).map((each) => each.hostPath)].filter(Boolean).map((path) => `folder ${path} of the host`);
  return {
    stay: listed([...volumes.filter((each) => !goes(each)).map(volumeText), ...folders, templateRef && !deleted ? `the volumes of template ${templateRef.name}` : '']),
    go: listed(['what it wrote to its root file system and to memory', ...volumes.filter(goes).map((each) => `${volumeText(each)}${each.claimed ? '' : ' with its last sandbox'}`)]),
  };
}

/** What a new container, or a deletion, does to a sandbox's files. */
export function filesText(object, deleted) {
  const { stay, go } = filesOf(object, deleted);
  return `Lost: ${go}. ${stay ? `Stays: ${stay}.` : 'Nothing stays: it has no volume and no folder of the host.'}${deleted ? ' Its snapshots stay.' : ''}`;
}

const DELETED = {
  Volume: 'Its data goes for good.', SandboxSnapshot: 'Its files go for good. Sandboxes that were made from it stay.', SandboxPool: 'Its warm members go; sandboxes that began with one stay.',
  SandboxTemplate: 'No sandbox can be created from it any more.', MCPServer: 'Its sessions end.', Provider: 'Sandboxes that name it lose its models at once.', ModelServer: 'Its model ends; sandboxes that name it lose it at once.', WorkflowRun: 'Its logs and artifacts go for good.',
};
/** What goes with a deleted object; '' where nothing but the object does. */
export const deletionText = (kind, object) => (kind.kind === 'Sandbox' ? filesText(object, true) : DELETED[kind.kind] ?? '');
