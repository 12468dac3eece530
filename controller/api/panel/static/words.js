// The STATUS word of a sandbox, as the daemon computes it for tables.
export function statusWord(object) {
  if (object.metadata.deletionTimestamp) return 'Terminating';
  const conditions = Object.fromEntries((object.status?.conditions ?? []).map((each) => [each.type, each]));
  for (const [type, status] of [['Accepted', 'False'], ['Finished', 'True'], ['Suspended', 'True'], ['Degraded', 'True']]) {
    if (conditions[type]?.status === status) return conditions[type].reason;
  }
  if (!conditions.Ready) return 'Pending';
  return conditions.Ready.status === 'True' ? 'Running' : conditions.Ready.reason;
}
