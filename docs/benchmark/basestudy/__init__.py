"""How well bases are chosen: real objects of many packages in one bucket, beside the best choice there was."""
