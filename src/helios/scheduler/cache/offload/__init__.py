"""The second tier: content of pages and snapshots in host memory and in files, by key.

`KeyChain` names content, `HostTier` and `FileTier` keep it, `Offload` moves it between them and
the prefix cache.
"""
