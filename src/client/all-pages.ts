/** All items of a listing, page by page. */
export async function allPages<Item>(
  read: (from: { cursor?: string }) => Promise<{ readonly items: readonly Item[]; readonly cursor?: string }>,
): Promise<Item[]> {
  const all: Item[] = []
  let from: { cursor?: string } = {}
  for (;;) {
    const { items, cursor } = await read(from)
    all.push(...items)
    if (cursor === undefined) return all
    from = { cursor }
  }
}
