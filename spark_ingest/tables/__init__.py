"""Tables of a catalog, which other programs read: the committed files of a job are added to them."""
